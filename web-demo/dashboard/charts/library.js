// uPlot, where set-up has fetched it (`python -m headstart.web_assets`); without it the page draws
// plain lines of its own.

const FOLDER = new URL("../../vendor/uplot/", import.meta.url);
const SYNC = "headstart";

let library = null;

/** @returns {Promise<boolean>} whether it is there */
export async function loadLibrary() {
  const script = document.createElement("script");
  script.src = new URL("uPlot.iife.min.js", FOLDER).href;
  const loaded = new Promise((resolve) => {
    script.onload = () => resolve(true);
    script.onerror = () => resolve(false);
  });
  document.head.append(script);
  if (!(await loaded) || typeof window.uPlot !== "function") return false;
  const sheet = document.createElement("link");
  sheet.rel = "stylesheet";
  sheet.href = new URL("uPlot.min.css", FOLDER).href;
  document.head.append(sheet);
  library = window.uPlot;
  return true;
}

export function uPlot() {
  return library;
}

/** All charts of one name move their cursors together. */
export function syncKey() {
  return SYNC;
}
