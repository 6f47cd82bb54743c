// Percentiles of each stage: a table whose numbers lead to turns, small charts with one cursor, and
// a heatmap.

import { el, keyed, scroller, setText } from "../dom.js";
import { Heatmap } from "../charts/heatmap.js";
import { LineChart } from "../charts/line.js";
import { bucketOf, Sketch, tooFew } from "../data/sketch.js";
import { leftOutAs } from "../data/turn.js";
import { inOrder, stageOf, titleOf } from "../stages.js";
import { clock, inMs, many } from "../units.js";
import { Highlight } from "./highlight.js";
import { TurnList } from "./turn-list.js";

const COLUMNS = 60;
const ROLL = 12; // each point is of a fifth of the window
const QS = [
  [0.5, "p50", "mind"],
  [0.95, "p95", "wait"],
  [0.99, "p99", "trouble"],
];
const SHOWN_MS = 0.05;
const SLOWER_SHOWN = 40;
const CHARTED_MS = 1; // what never took longer has no chart
const LEAST_S = 60; // a chart shows at least so much
const PERIOD_MS = 2_000;

export class PercentilesScreen {
  constructor(app) {
    this.app = app;
    this.charts = new Map();
    this.columns = [];
    this.drawnAtMs = 0;
    this.drawnVersion = -1;
    this.counts = el("p", { class: "small" });
    this.body = el("tbody");
    this.grid = el("div", { class: "multiples" });
    this.heatmap = new Heatmap({
      title: "First token, all turns",
      onPick: (cell) => this.pickCell(cell),
    });
    this.highlight = new Highlight(app);
    this.picked = el("section", {
      class: "card",
      id: "picked",
      hidden: true,
      tabindex: "-1",
      "aria-labelledby": "picked-title",
    });
    this.node = el(
      "section",
      { id: "percentiles", "aria-labelledby": "percentiles-title" },
      el(
        "div",
        { class: "title-row" },
        el("h2", { id: "percentiles-title" }, "Percentiles"),
        this.counts,
      ),
      el(
        "p",
        { class: "small" },
        "Press a number to list the turns behind it. Each is right to 1 %; stages below 1 ms have no chart.",
      ),
      scroller(
        "Percentiles by stage",
        el(
          "table",
          { class: "percentiles" },
          el("caption", { class: "unseen" }, "Percentiles by stage"),
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              el("th", { scope: "col" }, "Stage"),
              el("th", { scope: "col", class: "number" }, "n"),
              ...QS.map(([, name]) => el("th", { scope: "col", class: "number" }, name)),
            ),
          ),
          this.body,
        ),
      ),
      this.picked,
      this.heatmap.node,
      this.grid,
      this.highlight.node,
    );
  }

  draw(store, force = false) {
    const now = performance.now();
    const isOld = now - this.drawnAtMs > PERIOD_MS && store.version !== this.drawnVersion;
    if (!force && !isOld) return;
    this.drawnAtMs = now;
    this.drawnVersion = store.version;
    const toS = Math.floor(store.nowMs / 1_000) + 1;
    const fromS = toS - this.app.windowMs / 1_000;
    this.drawCounts(store, fromS * 1_000);
    const all = store.series.between(fromS, toS);
    const names = inOrder(all.keys()).filter(
      (name) => stageOf(name).title || all.get(name).quantile(1).ms >= SHOWN_MS,
    );
    keyed(
      this.body,
      names,
      (name) => name,
      (name) => this.row(name),
      (row, name) => this.fillRow(row, all.get(name)),
    );
    const startS = Math.min(toS - LEAST_S, Math.max(fromS, store.series.oldest() - 1)); // no empty half
    this.spanMs = (toS - startS) * 1_000;
    this.columns = store.series.columns(startS, toS, COLUMNS, ROLL);
    this.drawCharts(names.filter((name) => all.get(name).quantile(1).ms >= CHARTED_MS));
    this.heatmap.update(
      store.series
        .columns(startS, toS, COLUMNS)
        .map(({ at, stages }) => ({ at, sketch: stages.get("total") ?? new Sketch() })),
    );
    this.highlight.draw(store);
  }

  drawCounts(store, fromMs) {
    const turns = store.turnsSince(fromMs);
    const out = new Map();
    for (const turn of turns) {
      const why = leftOutAs(turn);
      if (why) out.set(why, (out.get(why) ?? 0) + 1);
    }
    const left = [...out].map(([why, n]) => `${n} ${why}`).join(", ");
    const counted = turns.length - [...out.values()].reduce((sum, n) => sum + n, 0);
    setText(this.counts, `${many(counted, "turn")}${left ? `; left out: ${left}` : ""}`);
  }

  row(name) {
    const stage = stageOf(name);
    const n = el("td", { class: "number" });
    const cells = QS.map(([q, label]) => {
      const button = el("button", {
        type: "button",
        class: "figure",
        onclick: () => this.pick(name, q),
      });
      const why = el("span", { class: "small" });
      return { q, label, button, why, cell: el("td", { class: "number" }, button, why) };
    });
    const row = el(
      "tr",
      {},
      el(
        "th",
        { scope: "row" },
        el("i", { class: `swatch ${stage.row}` }),
        titleOf(name),
        el("span", { class: "small wide-inline" }, ` ${stage.label}`),
      ),
      n,
      ...cells.map(({ cell }) => cell),
    );
    row.parts = { n, cells };
    return row;
  }

  fillRow(row, sketch) {
    setText(row.parts.n, String(sketch.n));
    for (const { q, label, button, why } of row.parts.cells) {
      const found = sketch.trusted(q);
      button.hidden = !found;
      why.hidden = Boolean(found);
      if (found) {
        setText(button, inMs(found.ms));
        button.setAttribute("aria-label", `${label} ${inMs(found.ms)}: list its turns`);
      } else setText(why, tooFew(sketch.n, q));
    }
  }

  drawCharts(names) {
    keyed(
      this.grid,
      names,
      (name) => name,
      (name) => this.chart(name).node,
      () => {},
    );
    for (const name of [...this.charts.keys()]) if (!names.includes(name)) this.charts.delete(name);
    const at = this.columns.map((column) => column.at);
    for (const name of names) {
      const values = QS.map(([q]) =>
        this.columns.map(({ stages }) => stages.get(name)?.trusted(q)?.ms ?? null),
      );
      this.charts.get(name).update(at, values);
    }
  }

  chart(name) {
    const chart = new LineChart({
      title: titleOf(name),
      note: stageOf(name).label,
      format: inMs,
      height: 130,
      lines: QS.map(([, label, colour]) => ({ label, colour })),
      onPick: (i, line) => this.pickPoint(name, i, line),
      onSelect: (fromS, toS) => this.highlight.choose(fromS, toS),
    });
    this.charts.set(name, chart);
    return chart;
  }

  pick(name, q) {
    const store = this.app.store;
    const toS = Math.floor(store.nowMs / 1_000) + 1;
    const sketch = store.series.between(toS - this.app.windowMs / 1_000, toS).get(name);
    if (sketch?.n) this.showQuantile(name, q, sketch, toS * 1_000 - this.app.windowMs, toS * 1_000);
  }

  pickPoint(name, i, line) {
    const [q] = QS[line];
    const { at } = this.columns[i];
    const fromS = at - ((ROLL + 1) * this.spanMs) / COLUMNS / 1_000;
    const sketch = this.app.store.series.between(fromS, at).get(name);
    if (sketch?.n) this.showQuantile(name, q, sketch, fromS * 1_000, at * 1_000);
  }

  /** The turns of a cell of the heatmap. */
  pickCell({ fromS, toS, fromMs, toMs, what }) {
    const kept = [...this.app.store.turns.values()].filter(
      ({ atMs, counts, totalMs }) =>
        counts &&
        atMs >= fromS * 1_000 &&
        atMs < toS * 1_000 &&
        totalMs > fromMs &&
        totalMs <= toMs,
    );
    const sketch = this.app.store.series.between(fromS, toS).get("total") ?? new Sketch();
    const [first, end] = [bucketOf(fromMs * 1.001), bucketOf(toMs * 1.001)];
    this.show(what, kept, sketch.above(first) - sketch.above(end));
  }

  /** The turns in the percentile's own bucket first, then those slower, slowest last. */
  showQuantile(name, q, sketch, fromMs, toMs) {
    const { ms, bucket } = sketch.quantile(q);
    const valueOf = (turn) => turn.values.find(([stage]) => stage === name)?.[1] ?? -1;
    const found = [...this.app.store.turns.values()]
      .filter((turn) => turn.atMs >= fromMs && turn.atMs < toMs)
      .filter((turn) => valueOf(turn) >= 0 && bucketOf(valueOf(turn)) >= bucket)
      .sort((a, b) => valueOf(a) - valueOf(b));
    this.show(
      `${titleOf(name)} p${Math.round(100 * q)}, ${inMs(ms)}, and what was slower, ${clock(fromMs)} to ${clock(toMs)}`,
      found,
      sketch.above(bucket),
    );
  }

  /** @param {object[]} found the turns that are kept; @param {number} all how many there were */
  show(what, found, all) {
    const list = new TurnList(what);
    list.draw(found.slice(0, SLOWER_SHOWN));
    const gone = Math.max(0, all - found.length);
    const notes = [
      gone ? `${many(gone, "turn")} of it ${gone === 1 ? "is" : "are"} no longer kept.` : "",
      found.length > SLOWER_SHOWN ? `${SLOWER_SHOWN} of ${found.length} are shown.` : "",
    ]
      .filter(Boolean)
      .join(" ");
    const close = el(
      "button",
      {
        type: "button",
        onclick: () => {
          this.picked.hidden = true;
        },
      },
      "Close",
    );
    this.picked.replaceChildren(
      el(
        "div",
        { class: "title-row" },
        el("h3", { id: "picked-title" }, `${many(found.length, "turn")}: ${what}`),
        close,
      ),
      scroller("The turns", list.node),
      el("p", { class: "small" }, notes),
    );
    this.picked.hidden = false;
    this.picked.focus();
  }
}
