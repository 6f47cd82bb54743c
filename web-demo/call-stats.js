// How a call's sound fares: WebRTC's own counters, once a second, as numbers of that second.

const PERIOD_MS = 1_000;

/** The growth of a counter. One that went back was reset, by a new track or a renegotiation: then
 * all that it shows is new. */
export function growth(before, now) {
  if (now == null) return null;
  if (before == null) return now;
  return now < before ? now : now - before;
}

function share(part, whole) {
  return part == null || !whole ? null : part / whole;
}

/** What one second of counters says; `before` and `now` are of `countersOf`. */
export function secondOf(before, now) {
  const grown = (name) => growth(before?.[name], now[name]);
  const emitted = grown("jitterBufferEmittedCount");
  const concealed = grown("concealedSamples");
  // Between answers nothing is sent, and the silence that is played then replaces nothing.
  const replaced = concealed == null ? null : concealed - (grown("silentConcealedSamples") ?? 0);
  return {
    buffer_ms: emitted ? (1_000 * grown("jitterBufferDelay")) / emitted : null,
    lost: grown("packetsLost"),
    received: grown("packetsReceived"),
    concealed: share(replaced, grown("totalSamplesReceived")),
    round_trip_ms: now.roundTripS == null ? null : 1_000 * now.roundTripS,
  };
}

const COUNTERS = [
  "jitterBufferDelay",
  "jitterBufferEmittedCount",
  "packetsLost",
  "packetsReceived",
  "concealedSamples",
  "silentConcealedSamples",
  "totalSamplesReceived",
];

/** @param {RTCStatsReport} report @returns {object} the counters of the sound that comes in */
export function countersOf(report) {
  const all = [...report.values()];
  const sound = all.find(({ type, kind }) => type === "inbound-rtp" && kind === "audio") ?? {};
  const pair = all.find(({ type, nominated, state }) =>
    type === "candidate-pair" && nominated && state === "succeeded");
  const counters = Object.fromEntries(COUNTERS.map((name) => [name, sound[name]]));
  return { ...counters, roundTripS: pair?.currentRoundTripTime };
}

export class CallStats {
  /** @param {(second: object) => void} onSecond told each second of a call what `secondOf` says */
  constructor(onSecond) {
    this.onSecond = onSecond;
    this.timer = null;
    this.last = null; // the newest second
  }

  /** @param {?RTCPeerConnection} peer the call to follow, or null for none */
  follow(peer) {
    clearInterval(this.timer);
    this.last = null;
    if (!peer) return;
    let before = null;
    this.timer = setInterval(async () => {
      const now = countersOf(await peer.getStats());
      this.last = secondOf(before, now);
      before = now;
      this.onSecond(this.last);
    }, PERIOD_MS);
  }

  /** From the server's sending a sound until it is heard, as far as this end can tell; or null. */
  get playoutMs() {
    if (this.last?.buffer_ms == null) return null;
    return this.last.buffer_ms + (this.last.round_trip_ms ?? 0) / 2;
  }
}
