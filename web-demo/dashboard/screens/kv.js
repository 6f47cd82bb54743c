// The KV cache: how full, with what, and what is done about it.

import { el, setText } from "../dom.js";
import { clock, count } from "../units.js";
import { ChartScreen, each, rates, seconds, thinned } from "./chart-screen.js";

export class KvScreen extends ChartScreen {
  constructor(app) {
    super(app, "kv", "KV cache", "What the model remembers of each session, in blocks.");
    this.blocks = this.chart({
      title: "Blocks",
      format: count,
      lines: [
        { label: "used", colour: "mind", fill: true },
        { label: "used or cached", colour: "ears" },
        { label: "all", colour: "soft", dash: true },
      ],
    });
    const modalities = [
      ["text", "wires"],
      ["audio", "ears"],
      ["image", "wait"],
      ["generated", "mind"],
    ];
    this.names = modalities.map(([name]) => name);
    this.tokens = this.chart({
      title: "Tokens by modality",
      format: count,
      lines: modalities.map(([label, colour]) => ({ label, colour })),
    });
    this.moves = this.chart({
      title: "Evicted tokens a second",
      format: count,
      lines: [{ label: "evicted", colour: "trouble" }],
    });
    this.timeline = el("div", { class: "state-line", role: "img" });
    this.levels = el("p", { class: "small legend" });
    this.grid.append(
      el(
        "figure",
        { class: "chart" },
        el("figcaption", {}, el("span", { class: "chart-title" }, "Level")),
        this.levels,
        this.timeline,
      ),
    );
    const kv = (read) => (s) => (s?.kv ? read(s.kv) : null);
    this.totals = this.facts([
      [
        "Used",
        kv(
          (k) =>
            `${count(k.blocks_used)} of ${count(k.blocks_total)} blocks, ${count(k.blocks_cached)} cached, ${count(k.blocks_total - k.blocks_used - (k.blocks_cached ?? 0))} free`,
        ),
      ],
      ["Evicted", kv((k) => `${count(k.evicted_tokens)} tokens`)],
      [
        "Offloaded",
        kv((k) => `${count(k.offloads)} times, ${count(k.offloaded_sessions)} sessions now`),
      ],
      ["Returned", kv((k) => `${count(k.returns)} times`)],
      ["Refused", kv((k) => `${count(k.refused)} sessions`)],
    ]);
  }

  draw(store) {
    const snapshots = thinned(store, this.app.windowMs);
    const at = seconds(snapshots);
    this.blocks.update(at, [
      each(snapshots, (s) => s.kv?.blocks_used),
      each(snapshots, (s) => s.kv && s.kv.blocks_used + (s.kv.blocks_cached ?? 0)),
      each(snapshots, (s) => s.kv?.blocks_total),
    ]);
    this.tokens.update(
      at,
      this.names.map((name) => each(snapshots, (s) => s.kv?.tokens?.[name])),
    );
    this.moves.update(at, [rates(snapshots, (s) => s.kv?.evicted_tokens)]);
    this.drawLevels(snapshots);
    this.totals.draw(store.snapshot);
  }

  /** Spans of one level side by side, with a sentence that says the same. */
  drawLevels(snapshots) {
    const spans = [];
    for (const { atMs, kv } of snapshots) {
      const level = kv?.level ?? "unknown";
      if (spans.at(-1)?.level === level) spans.at(-1).to = atMs;
      else spans.push({ level, from: atMs, to: atMs });
    }
    spans.forEach((span, i) => {
      span.to = spans[i + 1]?.from ?? span.to;
    });
    this.timeline.replaceChildren(
      ...spans.map((span) => {
        const node = el("span", {
          class: "level",
          title: `${span.level}, ${clock(span.from)} to ${clock(span.to)}`,
          style: { "flex-grow": String(Math.max(1, span.to - span.from)) },
        });
        node.dataset.level = span.level;
        return node;
      }),
    );
    const said = spans
      .slice(-4)
      .map((span) => `${span.level} since ${clock(span.from)}`)
      .join(", then ");
    setText(this.levels, said || "no data");
    this.timeline.setAttribute("aria-label", `Level: ${said || "no data"}`);
  }
}
