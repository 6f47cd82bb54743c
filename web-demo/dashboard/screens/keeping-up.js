// Keeping up: each chunk against its deadline, and how late the event loop runs.

import { el, scroller, setText, table } from "../dom.js";
import { levelOf, threshold } from "../data/health.js";
import { clock, count, inMs, percent } from "../units.js";
import { ChartScreen, peaks, seconds, thinned } from "./chart-screen.js";
import { turnLink } from "./turn-list.js";

const CHUNKS_SHOWN = 1_500;
const OVERRUNS_SHOWN = 20;
const percentOf = (value) => (value == null ? "–" : `${Math.round(value)} %`);

export class KeepingUpScreen extends ChartScreen {
  constructor(app) {
    super(
      app,
      "keeping-up",
      "Keeping up",
      "A chunk of sound has to be understood before the next one ends. Headroom is what was left of that time; below the dashed line it was missed.",
    );
    this.headroom = this.chart({
      title: "Headroom of each chunk",
      format: percentOf,
      height: 220,
      guide: 0,
      max: 100,
      lines: [{ label: "headroom", colour: "ears", points: true }],
      onPick: (i) => app.go(`turn=${encodeURIComponent(this.turnIds[i])}`),
      note: "press a point for its turn",
    });
    this.lag = this.chart({
      title: "Event loop lag",
      format: inMs,
      height: 220,
      lines: [
        { label: "p50", colour: "mind" },
        { label: "p99", colour: "wait" },
        { label: "others’ doing", colour: "wires", dash: true },
      ],
    });
    this.said = el("p");
    this.overruns = el("div");
    this.node.append(
      el("section", { class: "card" }, el("h3", {}, "Overruns"), this.said, this.overruns),
    );
    this.turnIds = [];
  }

  draw(store) {
    const chunks = store
      .turnsSince(store.nowMs - this.app.windowMs)
      .flatMap((turn) =>
        turn.chunks
          .filter(({ headroom }) => headroom !== null)
          .map((chunk) => ({
            chunk,
            turn,
            atS:
              (turn.atMs - (turn.stamps.done ?? turn.totalMs ?? 0) + chunk.start + chunk.duration) /
              1_000,
          })),
      );
    const shown = chunks.slice(-CHUNKS_SHOWN).sort((a, b) => a.atS - b.atS);
    this.turnIds = shown.map(({ turn }) => turn.id);
    this.headroom.update(
      shown.map(({ atS }) => atS),
      [shown.map(({ chunk }) => chunk.headroom)],
    );
    const snapshots = thinned(store, this.app.windowMs);
    const lag = (name) => peaks(snapshots, (s) => s.loop_lag?.[name]);
    this.lag.update(seconds(snapshots), [lag("p50_ms"), lag("p99_ms"), lag("other_ms")]);
    const over = chunks.filter(({ chunk }) => chunk.overrun);
    const share = chunks.length ? over.length / chunks.length : null;
    const level = levelOf(share, threshold(store, "chunk_overrun_share"));
    this.said.className = level === "bad" ? "bad" : "";
    setText(
      this.said,
      chunks.length
        ? `${over.length} of ${count(chunks.length)} chunks overran (${percent(share)}).`
        : "No chunk in this window.",
    );
    const rows = over
      .slice(-OVERRUNS_SHOWN)
      .reverse()
      .map(({ chunk, turn, atS }) => [
        turnLink(turn.id),
        clock(atS * 1_000),
        inMs(chunk.latency),
        inMs(chunk.due),
        percentOf(chunk.headroom),
      ]);
    const key = rows.length ? `${over.length}/${over.at(-1).turn.id}` : "";
    if (key === this.drawn) return;
    this.drawn = key;
    this.overruns.replaceChildren(
      ...(rows.length
        ? [
            scroller(
              "Overruns",
              table(
                "Newest overruns",
                [["Turn"], ["When"], ["Took", "number"], ["Of", "number"], ["Headroom", "number"]],
                rows,
              ),
            ),
          ]
        : []),
    );
  }
}
