// How the server does, in eight tiles: a number, a word and a level each, of the newest minutes.

import { Sketch } from "./sketch.js";
import { count, inMs, percent } from "../units.js";

const WINDOW_MS = 300_000;
const LEVELS = ["calm", "degraded", "offloading", "refusing"];
const ERRORS_PER_MIN = [1, 10];

// What counts where the feed says nothing: [warn, bad].
const DEFAULTS = {
  turns_over_budget_share: [0.05, 0.2],
  chunk_overrun_share: [0.01, 0.05],
  headroom_p5_percent: [20, 0],
  kv_share: [0.85, 1],
  kv_level: [2, 3],
  rtp_lost_share: [0.02, 0.05],
  loop_lag_p99_ms: [20, 50],
};

const WORDS = { good: "fine", warn: "watch", bad: "act", none: "no data" };

/** [warn, bad] of a threshold. */
export function threshold(store, name) {
  const given = store.hello?.thresholds?.[name];
  return Array.isArray(given) && given.every(Number.isFinite) ? given : DEFAULTS[name];
}

/** Where a number stands; thresholds that fall (headroom) are read the other way round. */
export function levelOf(value, [warn, bad]) {
  if (value == null || !Number.isFinite(value)) return "none";
  const sign = bad >= warn ? 1 : -1;
  if (sign * value >= sign * bad) return "bad";
  return sign * value >= sign * warn ? "warn" : "good";
}

function worse(a, b) {
  const order = ["none", "good", "warn", "bad"];
  return order.indexOf(a) > order.indexOf(b) ? a : b;
}

function sessions({ snapshot }) {
  const { open, max, refused = 0, detached = 0 } = snapshot?.sessions ?? {};
  const level = max ? levelOf(open / max, [0.9, 1]) : "none";
  const notes = [detached ? `${detached} detached` : "", refused ? `${refused} refused` : ""];
  return {
    value: open == null ? "–" : String(open),
    note: [max ? `of ${max}` : "", ...notes].filter(Boolean).join(", "),
    level,
  };
}

function firstToken(sketch, budgetMs) {
  const p50 = sketch.trusted(0.5);
  const p95 = sketch.trusted(0.95);
  let level = "none";
  if (p50 && budgetMs)
    level = p50.ms > budgetMs ? "bad" : (p95 ?? p50).ms > budgetMs ? "warn" : "good";
  return {
    value: inMs(p50?.ms),
    level,
    note: p95 ? `p50 · p95 ${inMs(p95.ms)}` : sketch.n ? `p50 · n = ${sketch.n}, no p95` : "",
  };
}

function firstSound(sketch, budgetMs) {
  const p95 = sketch.trusted(0.95);
  const p50 = sketch.trusted(0.5);
  if (!p50) return { value: "–", note: "nothing was spoken", level: "none" };
  // A voice begins after the first clause: twice the budget of the first token.
  const level = budgetMs ? levelOf((p95 ?? p50).ms, [2 * budgetMs, 3 * budgetMs]) : "none";
  if (!p95) return { value: inMs(p50.ms), note: `p50 · n = ${sketch.n}, no p95`, level };
  return { value: inMs(p95.ms), note: `p95 · p50 ${inMs(p50.ms)}`, level };
}

function within(store, counted, budgetMs) {
  const over = counted.filter((turn) => turn.overBudget).length;
  const share = counted.length ? over / counted.length : null;
  return {
    value: share === null ? "–" : percent(1 - share),
    note: budgetMs && share !== null ? `of ${count(counted.length)} turns in ${inMs(budgetMs)}` : "",
    level: levelOf(share, threshold(store, "turns_over_budget_share")),
  };
}

function headroom(store, turns) {
  const chunks = turns.flatMap((turn) => turn.chunks).filter((chunk) => chunk.headroom !== null);
  const sorted = chunks.map((chunk) => chunk.headroom).sort((a, b) => a - b);
  const p5 = sorted.length ? sorted[Math.max(0, Math.ceil(0.05 * sorted.length) - 1)] : null;
  const over = chunks.filter((chunk) => chunk.overrun).length;
  const overrun = levelOf(
    sorted.length ? over / sorted.length : null,
    threshold(store, "chunk_overrun_share"),
  );
  return {
    value: p5 === null ? "–" : `${Math.round(p5)} %`,
    note: sorted.length ? `p5 · ${over === 1 ? "1 overrun" : `${over} overruns`}` : "",
    level: worse(levelOf(p5, threshold(store, "headroom_p5_percent")), overrun),
  };
}

function kv(store) {
  const { blocks_used: used, blocks_total: total, level: name } = store.snapshot?.kv ?? {};
  const share = total ? used / total : null;
  const step = LEVELS.indexOf(name);
  const byLevel = step < 0 ? "none" : levelOf(step, threshold(store, "kv_level"));
  return {
    value: percent(share),
    note: name ?? "",
    level: worse(levelOf(share, threshold(store, "kv_share")), byLevel),
  };
}

/** Lost packets of the last minute, of those that were due. */
export function lostShare(store, spanMs = 60_000) {
  const recent = store.snapshots.filter(({ atMs }) => atMs >= store.nowMs - spanMs);
  const first = recent[0]?.rtc?.packets;
  const last = recent.at(-1)?.rtc?.packets;
  if (!first || !last) return null;
  const grown = (name) => Math.max(0, (last[name] ?? 0) - (first[name] ?? 0));
  const lost = grown("lost") + grown("late");
  const due = grown("played") + lost;
  return due ? lost / due : null;
}

function rtp(store) {
  const share = lostShare(store);
  const { calls } = store.snapshot?.calls ?? { calls: 0 };
  return {
    value: percent(share),
    level: levelOf(share, threshold(store, "rtp_lost_share")),
    note: share === null ? "no calls" : `last minute, ${calls === 1 ? "1 call" : `${calls} calls`}`,
  };
}

function errors({ snapshot }) {
  const perMin = snapshot?.errors?.last_minute;
  return {
    value: count(perMin),
    note: `${count(snapshot?.errors?.total)} since the start`,
    level: levelOf(perMin, ERRORS_PER_MIN),
  };
}

const RANKS = "p50: half of the turns were quicker; p95: 95 of 100 were";
const ABOUT = {
  sessions: "People connected, and how many there may be",
  "first-token": `First token: from a person’s last sound to the answer’s first word. ${RANKS}`,
  "first-sound": `From a person’s last sound to the first sound of a spoken answer. ${RANKS}`,
  within: "Turns whose first word came within the latency budget",
  headroom:
    "Headroom: the part of the time between two pieces of sound that was not needed for the " +
    "first. p5: 5 of 100 had less. An overrun took longer than that time",
  kv: "KV cache: the memory in which the model keeps conversations, and how much of it is used",
  rtp: "RTP loss: packets of sound that calls (WebRTC) sent and that did not come",
  errors: "Errors that sessions were told of",
};

/** @returns {{id, title, about, screen, value, note, level, word}[]} in the order of the strip */
export function tiles(store) {
  const turns = store.turnsSince(store.nowMs - WINDOW_MS);
  const counted = turns.filter((turn) => turn.counts);
  const budgetMs = store.settings.latency_budget_ms ?? counted.at(-1)?.budgetMs ?? null;
  const sketches = { total: new Sketch(), first_sound: new Sketch() };
  for (const { values } of counted) {
    for (const [name, ms] of values) sketches[name]?.add(ms);
  }
  const all = [
    ["sessions", "Sessions", "sessions", sessions(store)],
    ["first-token", "First word", "percentiles", firstToken(sketches.total, budgetMs)],
    ["first-sound", "First sound", "percentiles", firstSound(sketches.first_sound, budgetMs)],
    ["within", "In time", "percentiles", within(store, counted, budgetMs)],
    ["headroom", "Time to spare", "keeping-up", headroom(store, turns)],
    ["kv", "Memory of talks", "kv", kv(store)],
    ["rtp", "Lost packets", "rtc", rtp(store)],
    ["errors", "Errors a minute", "errors", errors(store)],
  ];
  return all.map(([id, title, screen, tile]) => ({
    id,
    title,
    screen,
    about: ABOUT[id],
    ...tile,
    word: WORDS[tile.level],
  }));
}
