// Two runs side by side: two files, or a file and what is shown now.

import { el, scroller, setText, table } from "../dom.js";
import { compare, settingsDiff } from "../data/compare.js";
import { Store } from "../data/store.js";
import { Reader, RecordingError } from "../files/reader.js";
import { titleOf } from "../stages.js";
import { inMs, many } from "../units.js";

const BREATHE_MS = 12;
const SHOWN_MS = 0.05; // what is less is no time

class Side {
  constructor(letter, onChange) {
    this.letter = letter;
    this.store = null; // null: what the page shows
    this.name = "";
    this.onChange = onChange;
    this.said = el("p", { class: "small" });
    this.file = el("input", {
      type: "file",
      accept: ".gz,.jsonl,.json,.ndjson",
      onchange: () => this.read(this.file.files[0]),
    });
    this.live = el(
      "button",
      { type: "button", onclick: () => this.useShown() },
      "What the page shows",
    );
    this.node = el(
      "fieldset",
      {},
      el("legend", {}, `${letter}: ${letter === "A" ? "before" : "after"}`),
      el("label", { class: "field" }, "Recording ", this.file),
      this.live,
      this.said,
    );
  }

  useShown() {
    this.store = null;
    this.name = "";
    this.file.value = "";
    this.onChange();
  }

  async read(file) {
    if (!file) return;
    const reader = new Reader(file);
    const store = new Store();
    let breathed = performance.now();
    try {
      for await (const message of reader.messages()) {
        store.apply(message);
        if (performance.now() - breathed < BREATHE_MS) continue;
        setText(
          this.said,
          `Reading ${file.name}: ${Math.round((100 * reader.bytesRead) / Math.max(1, file.size))} %`,
        );
        await new Promise((resolve) => setTimeout(resolve));
        breathed = performance.now();
      }
    } catch (error) {
      if (!(error instanceof RecordingError)) throw error;
      setText(this.said, error.message);
      this.said.classList.add("bad");
      return;
    }
    this.said.classList.remove("bad");
    this.store = store;
    this.name = file.name;
    this.remarks = reader.remarks;
    this.onChange();
  }
}

export class CompareScreen {
  constructor(app) {
    this.app = app;
    this.sides = ["A", "B"].map((letter) => new Side(letter, () => this.run()));
    this.result = el("div", { "aria-live": "polite" });
    this.swap = el("button", { type: "button", onclick: () => this.exchange() }, "Swap A and B");
    this.again = el("button", { type: "button", onclick: () => this.run() }, "Compare");
    this.node = el(
      "section",
      { id: "compare", "aria-labelledby": "compare-title" },
      el("h2", { id: "compare-title" }, "Compare"),
      el(
        "p",
        { class: "small" },
        "Choose a recording for one side or both; the other is what the page shows. Turns of the same clip or words are compared in pairs. Nothing leaves this page.",
      ),
      el("div", { class: "sides" }, ...this.sides.map((side) => side.node)),
      el("div", { class: "buttons" }, this.again, this.swap),
      this.result,
    );
  }

  draw() {} // changes only when it is asked to

  exchange() {
    const [a, b] = this.sides;
    [a.store, b.store, a.name, b.name, a.remarks, b.remarks] = [
      b.store,
      a.store,
      b.name,
      a.name,
      b.remarks,
      a.remarks,
    ];
    for (const side of this.sides) side.file.value = ""; // its name would be the other's
    this.run();
  }

  async run() {
    const stores = this.sides.map((side) => side.store ?? this.app.store);
    this.sides.forEach((side, i) => {
      const counted = [...stores[i].turns.values()].filter((turn) => turn.counts).length;
      setText(
        side.said,
        `${side.name || "What the page shows"}: ${many(counted, "turn")} that count${counted === 1 ? "s" : ""}, of ${stores[i].turns.size}. ${side.remarks ?? ""}`,
      );
    });
    if (stores[0] === stores[1]) {
      this.result.replaceChildren(
        el("p", { class: "empty" }, "Both sides are the same. Choose a recording for one of them."),
      );
      return;
    }
    this.result.replaceChildren(el("p", {}, "Comparing…"));
    const { pairs, rows } = await compare(...stores.map((store) => [...store.turns.values()]));
    this.result.replaceChildren(this.settings(stores), this.stages(pairs, rows));
  }

  settings(stores) {
    const facts = stores.map(({ hello, settings }) => ({
      headstart: hello?.headstart,
      model: hello?.model,
      ...settings,
    }));
    const rows = settingsDiff(...facts);
    const body = rows.length
      ? scroller(
          "Settings that differ",
          table("Settings that differ", [["Setting"], ["A"], ["B"]], rows),
        )
      : el("p", {}, "Version, model and settings are the same.");
    return el("section", { class: "card" }, el("h3", {}, "Settings that differ"), body);
  }

  stages(pairs, rows) {
    const columns = [
      ["Stage"],
      ["n A, B", "number"],
      ...["p50", "p95"].flatMap((name) => [
        [`${name} A`, "number"],
        [`${name} B`, "number"],
        ["Change", "number"],
        ["95 % interval", "number"],
      ]),
    ];
    const took = rows.filter(
      ({ figures: [p50, p95] }) =>
        !p50 || Math.max(p50.a, p50.b, p95?.a ?? 0, p95?.b ?? 0) >= SHOWN_MS,
    );
    const body = took.map(({ stage, nA, nB, figures }) => [
      titleOf(stage),
      `${nA}, ${nB}`,
      ...figures.flatMap((figure) => cells(figure)),
    ]);
    const how = pairs
      ? `${pairs} pairs of turns that heard the same clip or words.`
      : "Not paired: too few turns of both heard the same clip or words.";
    return el(
      "section",
      { class: "card" },
      el("h3", {}, "Stages"),
      el(
        "p",
        { class: "small" },
        `${how} Coloured where the bootstrap interval leaves out 0: there the change is no accident of which turns were seen.`,
      ),
      took.length
        ? scroller("Stages of A and B", table("Stages of A and B", columns, body))
        : el("p", { class: "empty" }, "There is no stage that both have measured."),
    );
  }
}

function cells(figure) {
  if (!figure) return ["too few", "", "", ""];
  const { a, b, change, low, high } = figure;
  const signed = (ms) =>
    Math.abs(ms) < SHOWN_MS ? "0" : `${ms < 0 ? "−" : "+"}${inMs(Math.abs(ms))}`;
  const verdict = low > 0 ? ["bad", "slower"] : high < 0 ? ["good", "faster"] : ["", ""];
  const text = el(
    "span",
    { class: verdict[0] },
    `${signed(change)}${verdict[1] ? ` ${verdict[1]}` : ""}`,
  );
  return [inMs(a), inMs(b), text, `${signed(low)} to ${signed(high)}`];
}
