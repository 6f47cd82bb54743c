// The latency chip of an answer: what the person waited, and how much of that a setting asked for.

import { inMs } from "./budget.js";

/** Which setting owns the wait after speech, from the session's own settings. */
export function waitSetting(turnDetection, endpointing) {
  if (!turnDetection) return null; // it ends with the button
  if (turnDetection.type === "semantic_vad") return "eagerness";
  return endpointing && endpointing !== "fixed" ? "endpointing" : "silence_duration_ms";
}

/**
 * @param {{budget: object, voice: ?object}} report of `gateway.latency.report`
 * @param {?{ms: number, about: boolean}} playout from the first sound sent until it was heard;
 *   `about`: estimated from the call's statistics
 * @param {?string} setting as `waitSetting`
 * @returns {string} "heard after 490 ms · 320 ms waiting (endpointing)", or "" if nothing was
 *   measured
 */
export function chipText({ budget, voice }, playout, setting) {
  const soundMs = voice?.total_ms ?? null;
  const about = playout?.about ? "about " : "";
  let said = "";
  if (soundMs != null && playout) said = `heard after ${about}${inMs(soundMs + playout.ms)}`;
  else if (soundMs != null) said = `spoken after ${inMs(soundMs)}`;
  else if (budget.total_ms != null) said = `first word after ${inMs(budget.total_ms)}`;
  else return "";
  const waitMs = budget.stages_ms?.vad_hangover;
  if (!waitMs) return said;
  return `${said} · ${inMs(waitMs)} waiting${setting ? ` (${setting})` : ""}`;
}

/** Where one turn's waterfall is. */
export function turnUrl(responseId) {
  return `dashboard/#turn=${encodeURIComponent(responseId)}`;
}
