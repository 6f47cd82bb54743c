// Turns as files for other tools: JSON, CSV, and a Perfetto trace with one track a stage.

import { barsOf, instantsOf } from "../charts/waterfall.js";
import { ROWS, STAGES } from "../stages.js";
import { Message } from "./protobuf.js";

const CSV_COLUMNS = [
  ["id", (turn) => turn.id],
  ["session", (turn) => turn.session],
  ["turn", (turn) => turn.number],
  ["at", (turn) => turn.message.at ?? new Date(turn.atMs).toISOString()],
  ["transport", (turn) => turn.message.transport],
  ["model", (turn) => turn.message.model],
  ["anchor", (turn) => turn.anchor],
  ["reason", (turn) => turn.reason],
  ["interrupted", (turn) => turn.interrupted],
  ["realtime", (turn) => turn.realtime],
  ["counts", (turn) => turn.counts],
  ["total_ms", (turn) => turn.totalMs],
  ["hidden_ms", (turn) => turn.hiddenMs],
  ["latency_budget_ms", (turn) => turn.budgetMs],
  ["over_budget", (turn) => turn.overBudget],
  ["first_sound_ms", (turn) => turn.stamps.first_sound],
  ["heard_ms", (turn) => turn.stamps.playout_started],
  ...STAGES.map(({ name }) => [`${name}_ms`, (turn) => turn.stages.get(name)]),
  ["chunks", (turn) => turn.chunks.length],
  ["overruns", (turn) => turn.chunks.filter((chunk) => chunk.overrun).length],
];

/** @returns {string} the greeting's facts and the turns as they came */
export function toJson(store) {
  const { run, started_at: startedAt, headstart, model, settings } = store.hello ?? {};
  const turns = [...store.turns.values()].map((turn) => turn.message);
  return `${JSON.stringify({ run, started_at: startedAt, headstart, model, settings, turns }, null, 1)}\n`;
}

/** One field of a CSV. A text that a spreadsheet would take for a formula gets a quote before it. */
function cell(value) {
  if (value == null) return "";
  if (typeof value !== "string") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** RFC 4180: one line a turn; empty for what nobody could measure. */
export function toCsv(store) {
  const lines = [CSV_COLUMNS.map(([name]) => name).join(",")];
  for (const turn of store.turns.values())
    lines.push(CSV_COLUMNS.map(([, read]) => cell(read(turn))).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

// Field numbers of perfetto.protos: trace_packet, track_descriptor, track_event, debug_annotation.
const TRACE = { packet: 1 };
const PACKET = { timestamp: 8, sequence: 10, event: 11, descriptor: 60 };
const TRACK = { uuid: 1, name: 2, parent: 5 };
const EVENT = { annotations: 4, type: 9, track: 11, categories: 22, name: 23 };
const ANNOTATION = { double: 5, string: 6, name: 10 };
const BEGIN = 1;
const END = 2;
const INSTANT = 3;
const SEQUENCE = 1;

class Trace {
  constructor() {
    this.out = new Message();
    this.uuid = 0;
    this.tracks = new Map();
    this.freeAt = new Map(); // track -> when its last slice ends: slices of one track must not cross
  }

  packet(fill) {
    const packet = new Message().uint(PACKET.sequence, SEQUENCE);
    fill(packet);
    this.out.message(TRACE.packet, packet);
  }

  track(key, name, parent = null) {
    if (!this.tracks.has(key)) {
      this.uuid += 1;
      const descriptor = new Message().uint(TRACK.uuid, this.uuid).string(TRACK.name, name);
      if (parent !== null) descriptor.uint(TRACK.parent, parent);
      this.packet((packet) => packet.message(PACKET.descriptor, descriptor));
      this.tracks.set(key, this.uuid);
    }
    return this.tracks.get(key);
  }

  event(type, track, ns, name = null, category = "", annotations = []) {
    const event = new Message().uint(EVENT.type, type).uint(EVENT.track, track);
    if (name !== null) event.string(EVENT.name, name).string(EVENT.categories, category);
    for (const [key, value] of annotations) {
      if (value == null) continue;
      const note = new Message().string(ANNOTATION.name, key);
      if (typeof value === "number") note.double(ANNOTATION.double, value);
      else note.string(ANNOTATION.string, String(value));
      event.message(EVENT.annotations, note);
    }
    this.packet((packet) => packet.uint(PACKET.timestamp, ns).message(PACKET.event, event));
  }

  slice(track, startNs, endNs, ...rest) {
    const start = Math.max(startNs, this.freeAt.get(track) ?? 0);
    if (endNs <= start) return;
    this.freeAt.set(track, endNs);
    this.event(BEGIN, track, start, ...rest);
    this.event(END, track, endNs);
  }
}

/** @returns {Uint8Array} a trace that ui.perfetto.dev and its trace processor open */
export function toPerfetto(store) {
  const trace = new Trace();
  const turns = [...store.turns.values()].map((turn) => ({
    turn,
    zeroMs: turn.atMs - (turn.stamps.done ?? turn.totalMs ?? 0),
    bars: barsOf(turn),
  }));
  const firstMs = Math.min(
    ...turns.flatMap(({ zeroMs, bars }) => [zeroMs, ...bars.map((bar) => zeroMs + bar.start)]),
  );
  const ns = (ms) => Math.max(0, Math.round((ms - firstMs) * 1e6));
  const order = new Map(ROWS.map(([row], i) => [row, i]));
  for (const { turn, zeroMs, bars } of turns) {
    const session = trace.track(turn.session, turn.session || "no session");
    const whole = trace.track(`${turn.session}/turn`, "turn", session);
    const endMs = Math.max(turn.totalMs ?? 0, ...bars.map((bar) => bar.end));
    const about = [
      ["response", turn.id],
      ["total_ms", turn.totalMs],
      ["hidden_ms", turn.hiddenMs],
      ["anchor", turn.anchor],
      ["reason", turn.reason],
    ];
    trace.slice(
      whole,
      ns(zeroMs),
      ns(zeroMs + endMs),
      `turn ${turn.number ?? ""}`.trim(),
      "turn",
      about,
    );
    const sorted = [...bars].sort(
      (a, b) => order.get(a.row) - order.get(b.row) || a.start - b.start,
    );
    for (const { stage, start, end, hidden } of sorted) {
      const track = trace.track(`${turn.session}/${stage}`, stage, session);
      trace.slice(
        track,
        ns(zeroMs + start),
        ns(zeroMs + end),
        stage,
        hidden ? "hidden" : "waited",
        [["response", turn.id]],
      );
    }
    for (const [name, ms] of instantsOf(turn))
      trace.event(INSTANT, whole, ns(zeroMs + ms), name, "instant");
  }
  return trace.out.bytes();
}
