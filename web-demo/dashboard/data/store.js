// All that the page knows of a server, or of a recording: messages in, bounded memory out. No DOM.

import { readTurn } from "./turn.js";
import { Series } from "./series.js";

export const TURNS_KEPT = 2_000;
const FRESH_MS = 300_000; // for so long each second is kept
const FRESH_KEPT = 320;
const COARSE_MS = 10_000; // then one in so long, with the worst of its seconds
const KEPT_MS = 3_600_000;
const COARSE_KEPT = 340;
const ERRORS_KEPT = 1_000;
const EVENTS_KEPT = 500;
const CHUNKS_KEPT = 240; // of each open session
const SPARKLINE = 60; // seconds of a session's speech with a headroom
export const VERSION = 1;

// Sent to one watcher alone, or only to those who asked: they do not count in `seq`.
const UNCOUNTED = new Set(["hello", "live", "chunk"]);

const finite = (value) => typeof value === "number" && Number.isFinite(value);
const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function keepNewest(array, number) {
  // Cut in strides: one shift a message would move the whole array each time.
  if (array.length > number * 1.1) array.splice(0, array.length - number);
}

/** What the screens need of a snapshot's rows once the next one is there. */
function summaryOf(rows) {
  const calls = rows.filter((row) => isRecord(row.rtc)).map((row) => row.rtc);
  const worst = (name) => {
    const all = calls.map((call) => call[name]).filter(finite);
    return all.length ? Math.max(...all) : null;
  };
  const names = ["lost_share", "jitter_ms", "buffer_ms", "rtt_ms"];
  return { calls: calls.length, ...Object.fromEntries(names.map((name) => [name, worst(name)])) };
}

// Of a coarse snapshot these are the worst of its seconds; all else is the newest one's.
const WORST = {
  steps: ["p95_ms", "max_ms", "queue_max"],
  loop_lag: ["p50_ms", "p99_ms", "other_ms"],
  calls: ["lost_share", "jitter_ms", "buffer_ms", "rtt_ms"],
};

function worst(kind, older, newer) {
  if (!isRecord(older) || !isRecord(newer)) return newer ?? older;
  const merged = { ...newer };
  for (const name of WORST[kind]) {
    const known = [older[name], newer[name]].filter(finite);
    if (known.length) merged[name] = Math.max(...known);
  }
  return merged;
}

/** Two snapshots of the same ten seconds as one. */
function mergedSnapshot(older, newer) {
  const merged = { ...newer };
  for (const kind of ["loop_lag", "calls"]) merged[kind] = worst(kind, older[kind], newer[kind]);
  if (isRecord(newer.engine))
    merged.engine = {
      ...newer.engine,
      steps: worst("steps", older.engine?.steps, newer.engine.steps),
    };
  return merged;
}

export class Store {
  constructor() {
    this.hello = null;
    this.baseMs = 0; // the wall clock at the server's start
    this.nowMs = 0; // that of the newest message
    this.turns = new Map(); // id -> turn, oldest first
    this.series = new Series();
    this.fresh = []; // snapshots without their rows, one a second, oldest first
    this.coarse = []; // older ones, one in ten seconds
    this.rows = [];
    this.sparklines = new Map(); // session -> { values: its newest headrooms, seen: of how many }
    this.chunks = new Map(); // session -> its newest `chunk` messages
    this.errors = []; // oldest first
    this.events = []; // of sessions
    this.seq = null; // the newest one counted
    this.isLive = false; // the ring has been sent
    this.missed = 0; // messages that never came
    this.unreadable = 0; // messages that were no such thing
    this.turnsSeen = 0;
    this.restarts = 0;
    this.recovered = 0;
    this.version = 0; // grows with each change
  }

  get settings() {
    return isRecord(this.hello?.settings) ? this.hello.settings : {};
  }

  get snapshot() {
    return this.fresh.at(-1) ?? null;
  }

  /** Of the last hour, oldest first. */
  get snapshots() {
    return [...this.coarse, ...this.fresh];
  }

  /** Turns from `fromMs` on, oldest first. */
  turnsSince(fromMs) {
    return [...this.turns.values()].filter((turn) => turn.atMs >= fromMs);
  }

  /** @param {any} message one message of a feed or line of a recording, already parsed */
  apply(message) {
    if (!isRecord(message) || typeof message.type !== "string") {
      this.unreadable += 1;
      return;
    }
    this.version += 1;
    if (message.type === "hello") {
      this.greeted(message);
      return;
    }
    if (!finite(message.at_ms) && message.type !== "live") {
      this.unreadable += 1;
      return;
    }
    if (!UNCOUNTED.has(message.type) || message.type === "live") this.count(message);
    const atMs = this.baseMs + (message.at_ms ?? 0);
    if (finite(message.at_ms)) this.nowMs = Math.max(this.nowMs, atMs);
    if (message.type === "turn") this.turn(message, atMs);
    else if (message.type === "snapshot") this.second(message, atMs);
    else if (message.type === "error") this.error(message, atMs);
    else if (message.type === "chunk") this.chunk(message, atMs);
    else if (message.type === "session") this.session(message, atMs);
  }

  greeted(hello) {
    const known = this.hello;
    if (known && known.run !== hello.run) {
      this.restarts += 1;
      this.seq = null;
      this.rows = [];
      this.chunks.clear();
    }
    this.hello = hello;
    this.isLive = false;
    this.recovered = 0;
    const startedMs = Date.parse(hello.started_at);
    this.baseMs = Number.isFinite(startedMs) ? startedMs : 0;
    const nowMs = this.baseMs + (finite(hello.at_ms) ? hello.at_ms : 0);
    if (nowMs < this.nowMs && known?.run !== hello.run) this.clockWentBack();
    this.nowMs = Math.max(this.nowMs, nowMs);
  }

  /** Another run, and its clock is behind: what was measured by the other one would hide it. */
  clockWentBack() {
    this.nowMs = 0;
    this.series = new Series();
    this.fresh = [];
    this.coarse = [];
  }

  /** Counts what never came. What the ring brought again was not missed. */
  count({ type, seq }) {
    // A snapshot is in no ring: with the first one the ring is over, whatever is missing.
    if (type === "live" || type === "snapshot") this.isLive = true;
    if (UNCOUNTED.has(type) || !finite(seq)) return;
    if (!this.isLive) {
      if (this.seq !== null && seq > this.seq) this.recovered += 1;
      return;
    }
    if (this.seq !== null) this.missed += Math.max(0, seq - this.seq - 1 - this.recovered);
    this.recovered = 0;
    this.seq = Math.max(this.seq ?? seq, seq);
  }

  turn(message, atMs) {
    const turn = readTurn(message, atMs);
    if (turn === null) {
      this.unreadable += 1;
      return;
    }
    const old = this.turns.get(turn.id);
    if (old && old.revision >= turn.revision) return;
    if (old) {
      turn.atMs = old.atMs; // it stays where it was
      this.series.remove(old.atMs / 1_000, old.values);
    } else {
      this.turnsSeen += 1;
    }
    this.series.add(turn.atMs / 1_000, turn.values);
    this.turns.set(turn.id, turn);
    if (this.turns.size > TURNS_KEPT) this.turns.delete(this.turns.keys().next().value);
  }

  second(message, atMs) {
    const rows = Array.isArray(message.rows)
      ? message.rows.filter((row) => typeof row?.id === "string")
      : [];
    const { rows: _, ...rest } = message;
    this.rows = rows;
    this.fresh.push({ ...rest, atMs, calls: summaryOf(rows) });
    this.age(atMs);
    const open = new Set(rows.map(({ id }) => id));
    for (const { id, state, headroom_percent: headroom } of rows) {
      if (!this.sparklines.has(id)) this.sparklines.set(id, { values: [], seen: 0 });
      const line = this.sparklines.get(id);
      const value = finite(headroom) ? headroom : null;
      if (state !== "speaking" && value === line.values.at(-1)) continue; // no chunk of it was heard
      line.values.push(value);
      line.seen += 1;
      if (line.values.length > SPARKLINE) line.values.shift();
    }
    for (const map of [this.sparklines, this.chunks]) {
      for (const id of map.keys()) if (!open.has(id)) map.delete(id);
    }
  }

  /** Merges the seconds that are no longer fresh, and drops what is older than an hour. */
  age(nowMs) {
    while (this.fresh.length > FRESH_KEPT || this.fresh[0]?.atMs < nowMs - FRESH_MS) {
      const old = this.fresh.shift();
      const last = this.coarse.at(-1);
      const isSame = last && Math.floor(last.atMs / COARSE_MS) === Math.floor(old.atMs / COARSE_MS);
      if (isSame) this.coarse[this.coarse.length - 1] = mergedSnapshot(last, old);
      else this.coarse.push(old);
    }
    while (this.coarse.length > COARSE_KEPT || this.coarse[0]?.atMs < nowMs - KEPT_MS)
      this.coarse.shift();
  }

  error(message, atMs) {
    if (this.errors.some((error) => error.seq === message.seq && error.run === this.hello?.run))
      return;
    this.errors.push({
      seq: message.seq,
      run: this.hello?.run,
      atMs,
      code: String(message.code ?? "unknown"),
      message: String(message.message ?? ""),
      session: typeof message.session === "string" ? message.session : null,
      turn: typeof message.turn === "string" ? message.turn : null,
    });
    keepNewest(this.errors, ERRORS_KEPT);
  }

  chunk(message, atMs) {
    if (typeof message.session !== "string" || !finite(message.duration_ms)) {
      this.unreadable += 1;
      return;
    }
    if (!this.chunks.has(message.session)) this.chunks.set(message.session, []);
    const chunks = this.chunks.get(message.session);
    chunks.push({ ...message, atMs });
    keepNewest(chunks, CHUNKS_KEPT);
  }

  session(message, atMs) {
    this.events.push({ ...message, atMs });
    keepNewest(this.events, EVENTS_KEPT);
  }
}
