// A highlighted window: which stages changed most against the four times longer span before it.

import { el, scroller, table } from "../dom.js";
import { titleOf } from "../stages.js";
import { clock, inMs } from "../units.js";

const BEFORE = 4;
const LEAST_MS = 1; // what changed by less is no cause
const FEW = 20;

/** Stages by how much their middle moved: [{name, nowMs, beforeMs, n, nBefore}], most first. */
export function ranked(series, fromS, toS) {
  const now = series.between(fromS, toS);
  const before = series.between(fromS - BEFORE * (toS - fromS), fromS);
  const all = [];
  for (const [name, sketch] of now) {
    const old = before.get(name);
    if (!old?.n || !sketch.n) continue;
    const [a, b] = [sketch, old].map((s) => ({
      p50: s.quantile(0.5).ms,
      p95: s.trusted(0.95)?.ms ?? null,
    }));
    all.push({ name, n: sketch.n, nBefore: old.n, now: a, before: b, change: a.p50 - b.p50 });
  }
  return all
    .filter(({ change }) => Math.abs(change) >= LEAST_MS)
    .sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
}

export class Highlight {
  constructor(app) {
    this.app = app;
    this.span = null; // [fromS, toS]
    this.length = el(
      "select",
      {},
      ...[
        [30, "30 s"],
        [60, "1 min"],
        [300, "5 min"],
        [600, "10 min"],
      ].map(([s, text]) => el("option", { value: String(s) }, text)),
    );
    this.length.value = "60";
    this.ago = el(
      "select",
      {},
      ...[
        [0, "now"],
        [60, "1 min ago"],
        [120, "2 min ago"],
        [300, "5 min ago"],
        [600, "10 min ago"],
        [1_800, "30 min ago"],
      ].map(([s, text]) => el("option", { value: String(s) }, text)),
    );
    this.result = el("div", { id: "changes" });
    const go = el(
      "button",
      { type: "button", onclick: () => this.chooseByKeys() },
      "Rank the changes",
    );
    this.node = el(
      "section",
      { class: "card", "aria-labelledby": "changes-title" },
      el("h3", { id: "changes-title" }, "What changed?"),
      el(
        "p",
        { class: "small" },
        "Drag over a chart, or choose a window: its stages are ranked by how they moved against the four times longer span before it.",
      ),
      el(
        "div",
        { class: "title-row" },
        el("label", { class: "field" }, "Window of ", this.length),
        el("label", { class: "field" }, "ending ", this.ago),
        go,
      ),
      this.result,
    );
  }

  chooseByKeys() {
    const toS = this.app.store.nowMs / 1_000 - Number(this.ago.value);
    this.choose(toS - Number(this.length.value), toS);
  }

  choose(fromS, toS) {
    this.span = [Math.floor(fromS), Math.max(Math.floor(fromS) + 1, Math.ceil(toS))];
    this.draw(this.app.store);
    this.node.scrollIntoView({ block: "nearest" });
  }

  draw(store) {
    if (!this.span) return;
    const [fromS, toS] = this.span;
    const rows = ranked(store.series, fromS, toS);
    const said = `${clock(fromS * 1_000)} to ${clock(toS * 1_000)}, against the ${BEFORE * (toS - fromS)} s before.`;
    if (!rows.length) {
      this.result.replaceChildren(
        el("p", {}, `${said} No stage moved by ${LEAST_MS} ms, or there are no turns to compare.`),
      );
      return;
    }
    const sign = (ms) => `${ms > 0 ? "+" : "−"}${inMs(Math.abs(ms))}`;
    const few = rows[0].n < FEW ? ` Only ${rows[0].n} turns: read it with care.` : "";
    this.result.replaceChildren(
      el("p", {}, said + few),
      scroller(
        "Stages by change",
        table(
          "Stages by change",
          [
            ["Stage"],
            ["Change of p50", "number"],
            ["p50", "number"],
            ["before", "number"],
            ["p95", "number"],
            ["before", "number"],
          ],
          rows.map((row) => [
            titleOf(row.name),
            el("b", { class: row.change > 0 ? "bad" : "good" }, sign(row.change)),
            inMs(row.now.p50),
            inMs(row.before.p50),
            inMs(row.now.p95),
            inMs(row.before.p95),
          ]),
        ),
      ),
    );
  }
}
