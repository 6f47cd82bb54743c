// One turn from capture to ear. Time 0 is the last sound of speech: what was done before the endpoint
// cost nobody anything and is hatched; what the person waited for is solid.

import { el } from "../dom.js";
import { ROWS, stageOf } from "../stages.js";
import { inMs } from "../units.js";

const LEFT_SHARE = 0.34; // of the width, for what came before time 0
const TICKS = [1, 2, 5];
const SPEECH = new Set(["captured", "departed", "received"]);

/** Where the waits of a turn lie: [{row, stage, start, end, hidden}], in ms from time 0. */
export function barsOf(turn) {
  const { stamps, stages } = turn;
  const endpoint = endpointOf(turn);
  const bars = [];
  const add = (stage, start, end, hidden = false) => {
    if (start == null || end == null || end <= start) return;
    bars.push({ row: stageOf(stage).row, stage, start, end, hidden });
  };
  if (SPEECH.has(turn.anchor)) {
    let at = 0;
    for (const stage of ["network", "buffer", "resample"]) {
      const ms = stages.get(stage) ?? 0;
      add(stage, at, at + ms);
      at += ms;
    }
    add("vad_hangover", at, endpoint);
  }
  for (const { stage, start, end } of turn.spans) {
    add(stage, start, Math.min(end, endpoint), true);
    add(stage, Math.max(start, endpoint), end);
  }
  const served = stamps.first_delta ?? stamps.first_token;
  if (served != null)
    for (const [start, end] of gaps(turn.spans, endpoint, served)) add("queue", start, end);
  add("send", stamps.first_delta, stamps.first_token);
  add("voice", stamps.first_token ?? stamps.first_clause, stamps.first_sound);
  add("playout", stamps.first_sound, stamps.playout_started);
  return bars;
}

/** When the turn's own work stopped being free: at the endpoint, or at the request. */
export function endpointOf({ stamps }) {
  return stamps.endpoint ?? stamps.requested ?? 0;
}

/** The parts of [from, to) in which no span runs: somebody waited for a step. */
function gaps(spans, from, to) {
  const found = [];
  let at = from;
  for (const { start, end } of [...spans].sort((a, b) => a.start - b.start)) {
    if (start > at) found.push([at, Math.min(start, to)]);
    at = Math.max(at, end);
    if (at >= to) break;
  }
  if (at < to) found.push([at, to]);
  return found.filter(([start, end]) => end > start);
}

/** Instants worth a line: [name, ms], in order. */
export function instantsOf({ stamps }) {
  return [
    ["endpoint", stamps.endpoint],
    ["first token", stamps.first_token],
    ["first sound", stamps.first_sound],
    ["heard", stamps.playout_started],
  ].filter(([, ms]) => ms != null);
}

class Scale {
  constructor(left, right, isOne) {
    this.left = Math.min(0, left);
    this.right = Math.max(1, right);
    const whole = this.right - this.left;
    this.zero =
      this.left === 0
        ? 0
        : isOne
          ? -this.left / whole
          : Math.min(LEFT_SHARE, Math.max(0.12, -this.left / whole));
  }

  /** Percent of the width. */
  x(ms) {
    if (ms < 0) return 100 * this.zero * (1 - Math.max(ms, this.left) / this.left);
    return 100 * (this.zero + (1 - this.zero) * (Math.min(ms, this.right) / this.right));
  }

  /** How much smaller the left side is drawn. */
  get squeeze() {
    if (this.left === 0) return 1;
    return -this.left / this.zero / (this.right / (1 - this.zero));
  }

  ticks(number) {
    const right = steps(this.right, Math.max(2, Math.round(number * (1 - this.zero))));
    const left = steps(-this.left, Math.max(1, Math.round(number * this.zero)))
      .filter((ms) => ms > 0)
      .map((ms) => -ms);
    return [...left, ...right];
  }
}

function steps(length, number) {
  if (length <= 0) return [];
  const rough = length / number;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (TICKS.find((tick) => tick * power >= rough) ?? 10);
  return Array.from({ length: Math.floor(length / step) + 1 }, (_, i) => i * step);
}

function sentence(turn, bars) {
  const hidden = bars.filter((bar) => bar.hidden).length;
  const parts = instantsOf(turn).map(([name, ms]) => `${name} after ${inMs(ms)}`);
  return `Waterfall: ${parts.join(", ") || "nothing was measured"}; ${hidden} pieces of work hidden before the endpoint. The table below has the numbers.`;
}

/** @param {{isOne: boolean}} options `isOne`: both sides of time 0 at one scale */
export function waterfall(turn, { isOne }) {
  const bars = barsOf(turn);
  const chunks = turn.chunks;
  const starts = [...bars.map((bar) => bar.start), ...chunks.map((chunk) => chunk.start)];
  const ends = [
    ...bars.map((bar) => bar.end),
    ...instantsOf(turn).map(([, ms]) => ms),
    turn.totalMs ?? 0,
  ];
  const scale = new Scale(Math.min(0, ...starts), 1.04 * Math.max(1, ...ends), isOne);
  const rows = ROWS.map(([row, title]) => {
    const track = el(
      "div",
      { class: "track" },
      ...bars.filter((bar) => bar.row === row).map((bar) => barNode(bar, scale)),
    );
    if (row === "ears") track.append(...marks(chunks, scale));
    return el("div", { class: "lane" }, el("span", { class: "lane-name" }, title), track);
  });
  const axis = el(
    "div",
    { class: "track axis" },
    ...scale
      .ticks(9)
      .map((ms) =>
        el(
          "span",
          { class: "tick", style: { left: `${scale.x(ms)}%` } },
          ms === 0
            ? "0"
            : inMs(ms).replace(".00 s", " s").replace(".0 ms", " ms").replace("-", "−"),
        ),
      ),
  );
  const flags = el(
    "div",
    { class: "track flags" },
    ...instantsOf(turn).map(([name, ms], i) =>
      el(
        "span",
        {
          class: scale.x(ms) > 55 ? "flag to-left" : "flag",
          style: { left: `${scale.x(ms)}%`, top: `${i * 1.15}rem` },
        },
        `${name} ${inMs(ms)}`,
      ),
    ),
  );
  const lines = el(
    "div",
    { class: "lines" },
    el("span", { class: "instant zero", style: { left: `${scale.x(0)}%` } }),
    ...instantsOf(turn).map(([name, ms]) =>
      el("span", {
        class: "instant",
        title: `${name} ${inMs(ms)}`,
        style: { left: `${scale.x(ms)}%` },
      }),
    ),
  );
  const squeeze = scale.squeeze;
  const note =
    squeeze > 1.2 || squeeze < 0.8
      ? ` Left of 0, time is drawn ${squeeze >= 1 ? `${squeeze.toFixed(1)} times narrower` : `${(1 / squeeze).toFixed(1)} times wider`}.`
      : "";
  return el(
    "div",
    { class: "waterfall" },
    el(
      "div",
      { role: "img", "aria-label": sentence(turn, bars) },
      el("div", { class: "lane head" }, el("span", { class: "lane-name" }), flags),
      el(
        "div",
        { class: "lanes" },
        ...rows,
        el("div", { class: "lane over" }, el("span", { class: "lane-name" }), lines),
      ),
      el("div", { class: "lane" }, el("span", { class: "lane-name" }), axis),
    ),
    el(
      "p",
      { class: "small legend" },
      el(
        "span",
        { class: "key" },
        el("i", { class: "sample hatched" }),
        "hidden: done before the endpoint",
      ),
      el("span", { class: "key" }, el("i", { class: "sample solid" }), "waited for"),
      el("span", { class: "key" }, el("i", { class: "sample deadline" }), "a chunk’s deadline"),
      el(
        "span",
        { class: "key" },
        el("i", { class: "sample rollback" }, "↶"),
        "tokens rolled back",
      ),
      el("span", {}, `0 is the last sound of speech.${note}`),
    ),
  );
}

function barNode({ stage, row, start, end, hidden }, scale) {
  const left = scale.x(start);
  const what = hidden ? "hidden" : "waited";
  const node = el("span", {
    class: `bar ${row} ${what}`,
    title: `${stage}: ${inMs(end - start)} ${what}, from ${inMs(start)} to ${inMs(end)}`,
    style: { left: `${left}%`, width: `${Math.max(0.25, scale.x(end) - left)}%` },
  });
  node.dataset.stage = stage;
  return node;
}

function marks(chunks, scale) {
  return chunks.flatMap((chunk) => {
    const found = [];
    if (chunk.deadline >= scale.left && chunk.deadline <= scale.right) {
      const title = `deadline of the chunk from ${inMs(chunk.start)}: ${chunk.overrun ? "missed" : "kept"}, ${inMs(chunk.latency)} of ${inMs(chunk.due)}`;
      found.push(
        el("span", {
          class: chunk.overrun ? "deadline missed" : "deadline",
          title,
          style: { left: `${scale.x(chunk.deadline)}%` },
        }),
      );
    }
    if (chunk.rolledBack > 0) {
      const at = chunk.start + chunk.duration + (chunk.latency ?? 0);
      found.push(
        el(
          "span",
          {
            class: "rollback",
            title: `${chunk.rolledBack} tokens rolled back`,
            style: { left: `${scale.x(at)}%` },
          },
          "↶",
        ),
      );
    }
    return found;
  });
}
