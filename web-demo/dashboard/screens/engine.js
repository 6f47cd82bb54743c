// The engine: how long its steps take, what is in them, and what speculation was worth.

import { el, keyed, scroller, setAttribute, setText } from "../dom.js";
import { bytes, count, inMs, percent } from "../units.js";
import { ChartScreen, each, peaks, rates, seconds, thinned } from "./chart-screen.js";

const ENGINE_COLUMNS = [
  ["Engine", ({ name }) => name],
  ["State", ({ state, reason }) => (reason ? `${state}: ${reason}` : state)],
  ["Where", ({ local }) => (local ? "here" : "elsewhere")],
  ["Sessions", ({ sessions }) => count(sessions)],
  ["KV in use", ({ kv_blocks_used: used, kv_blocks_total: all }) => (all ? percent(used / all) : null)],
  ["To prefill", ({ pending_prefill_tokens: tokens }) => count(tokens)],
  ["Step p95", ({ steps_p95_ms: p95 }) => inMs(p95)],
  ["Memory", ({ rss_bytes: rss }) => bytes(rss)],
  ["Restarts", ({ restarts }) => count(restarts)],
];

/** Of the newest snapshot: one an engine; an older server tells of none. */
export const enginesOf = ({ snapshot }) =>
  Array.isArray(snapshot?.engines) ? snapshot.engines.filter((engine) => engine?.name) : [];

export class EngineScreen extends ChartScreen {
  constructor(app) {
    super(app, "engine", "Engine", "One step reads and writes tokens of all sessions at once.");
    this.steps = this.chart({
      title: "Step duration",
      format: inMs,
      lines: [
        { label: "p50", colour: "mind" },
        { label: "p95", colour: "wait" },
        { label: "longest", colour: "trouble", dash: true },
      ],
    });
    this.tokens = this.chart({
      title: "Tokens a second",
      format: count,
      lines: [
        { label: "prefill", colour: "ears" },
        { label: "decode", colour: "mind" },
      ],
    });
    this.busy = this.chart({
      title: "Busy",
      format: percent,
      max: 1,
      lines: [{ label: "share of the second", colour: "mind", fill: true }],
    });
    this.batch = this.chart({
      title: "Sessions a step, and queue",
      format: count,
      lines: [
        { label: "sessions", colour: "wires" },
        { label: "longest queue", colour: "wait" },
        { label: "tokens to prefill", colour: "soft", dash: true },
      ],
    });
    this.speculation = this.chart({
      title: "Speculated tokens a second",
      format: count,
      lines: [
        { label: "kept", colour: "ears" },
        { label: "rolled back", colour: "trouble" },
      ],
    });
    this.createEngines();
    this.totals = this.facts([
      ["State", (s) => s?.engine?.state],
      ["Restarts", (s) => count(s?.engine?.restarts)],
      ["Memory", (s) => bytes(s?.engine?.rss_bytes)],
      ["Sessions", (s) => count(s?.engine?.sessions)],
      ["Speculation", (s) => speculated(s?.engine?.speculation)],
      [
        "Gateway",
        (s) =>
          s?.process
            ? `${percent(s.process.gateway_cpu_share)} of a core, ${bytes(s.process.gateway_rss_bytes)}`
            : null,
      ],
    ]);
  }

  /** One line an engine, where a gateway has several; the charts are of all of them together. */
  createEngines() {
    this.engines = el("tbody");
    const heads = ENGINE_COLUMNS.map(([title]) => el("th", { scope: "col" }, title));
    this.several = el(
      "section",
      { class: "card engines", hidden: true, "aria-labelledby": "engines-title" },
      el("h3", { id: "engines-title" }, "Engines"),
      scroller(
        "Engines",
        el("table", {}, el("thead", {}, el("tr", {}, ...heads)), this.engines),
      ),
    );
    this.node.append(this.several);
  }

  drawEngines(engines) {
    this.several.hidden = engines.length < 2;
    if (this.several.hidden) return;
    keyed(
      this.engines,
      engines,
      ({ name }) => name,
      () =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }),
          ...ENGINE_COLUMNS.slice(1).map(() => el("td")),
        ),
      (row, engine) => {
        ENGINE_COLUMNS.forEach(([, read], i) => setText(row.cells[i], String(read(engine) ?? "–")));
        setAttribute(row.cells[1], "class", engine.state === "ready" ? "" : "bad");
      },
    );
  }

  draw(store) {
    this.drawEngines(enginesOf(store));
    const snapshots = thinned(store, this.app.windowMs);
    const at = seconds(snapshots);
    const step = (name) => each(snapshots, (s) => s.engine?.steps?.[name]);
    const worst = (name) => peaks(snapshots, (s) => s.engine?.steps?.[name]);
    this.steps.update(at, [step("p50_ms"), worst("p95_ms"), worst("max_ms")]);
    this.tokens.update(at, [step("prefill_tokens"), step("decode_tokens")]);
    this.busy.update(at, [step("busy_ms").map((ms) => (ms === null ? null : ms / 1_000))]);
    this.batch.update(at, [
      step("sessions_mean"),
      worst("queue_max"),
      each(snapshots, (s) => s.engine?.pending_prefill_tokens),
    ]);
    this.speculation.update(
      at,
      ["kept_tokens", "wasted_tokens"].map((name) =>
        rates(snapshots, (s) => s.engine?.speculation?.[name]),
      ),
    );
    this.totals.draw(store.snapshot);
  }
}

function speculated(totals) {
  if (!totals) return null;
  const { kept_tokens: kept = 0, wasted_tokens: wasted = 0 } = totals;
  const share = kept + wasted ? ` (${percent(kept / (kept + wasted))} kept)` : "";
  return `${count(kept)} kept, ${count(wasted)} rolled back${share}`;
}
