// Hands a trace to Perfetto's page, as it asks for: open it, PING until it answers, send the bytes.

export const PERFETTO = "https://ui.perfetto.dev";
const PING_MS = 200;
const WAIT_MS = 20_000;

/**
 * @param {Uint8Array} trace
 * @returns {Promise<boolean>} whether that page took it; false if it was blocked or never answered
 */
export function openInPerfetto(trace, title) {
  const page = window.open(PERFETTO);
  if (!page) return Promise.resolve(false);
  return new Promise((resolve) => {
    const finish = (taken) => {
      clearInterval(pings);
      clearTimeout(limit);
      window.removeEventListener("message", onMessage);
      resolve(taken);
    };
    const onMessage = ({ origin, data, source }) => {
      if (origin !== PERFETTO || source !== page || data !== "PONG") return;
      page.postMessage({ perfetto: { buffer: trace.buffer, title } }, PERFETTO);
      finish(true);
    };
    const pings = setInterval(() => page.postMessage("PING", PERFETTO), PING_MS);
    const limit = setTimeout(() => finish(false), WAIT_MS);
    window.addEventListener("message", onMessage);
  });
}
