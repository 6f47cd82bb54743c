// A list of turns as a table, each a link to its waterfall.

import { el, keyed, setText } from "../dom.js";
import { miniBar } from "../charts/mini.js";
import { leftOutAs } from "../data/turn.js";
import { clock, inMs, shortId } from "../units.js";

const HEADINGS = [
  ["Turn"],
  ["When", "wide-only"],
  ["First token", "number"],
  ["First sound", "number wide-only"],
  ["Where the time went", "bar-column"],
  ["How it ended", "wide-only"],
];

export function turnLink(id, text = shortId(id)) {
  return el("a", { href: `#turn=${encodeURIComponent(id)}`, title: id }, text);
}

/** "completed", "interrupted", "over budget", …: one or two words for a turn. */
export function endOf(turn) {
  const words = [turn.reason === "completed" ? "" : turn.reason, leftOutAs(turn) ?? ""].filter(
    Boolean,
  );
  if (turn.overBudget) words.push("over budget");
  return [...new Set(words)].join(", ") || "completed";
}

export class TurnList {
  constructor(caption) {
    this.body = el("tbody");
    this.node = el(
      "table",
      { class: "turns" },
      el("caption", { class: "unseen" }, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ...HEADINGS.map(([text, kind]) => el("th", { scope: "col", class: kind }, text)),
        ),
      ),
      this.body,
    );
  }

  /** @param {object[]} turns in the order in which to show them; `current`: the id that is open */
  draw(turns, current = null) {
    const scaleMs = Math.max(1, ...turns.map((turn) => turn.totalMs ?? 0));
    keyed(
      this.body,
      turns,
      (turn) => `${turn.id}/${turn.revision}`,
      (turn) => this.row(turn),
      (row, turn) => {
        row.classList.toggle("current", turn.id === current);
        const bar = row.querySelector(".mini-bar");
        bar.style.width = `${Math.max(2, (100 * (turn.totalMs ?? 0)) / scaleMs)}%`;
      },
    );
  }

  row(turn) {
    const total = el("td", { class: "number" });
    setText(total, inMs(turn.totalMs));
    if (turn.overBudget) total.classList.add("bad");
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, turnLink(turn.id)),
      el("td", { class: "wide-only" }, clock(turn.atMs)),
      total,
      el("td", { class: "number wide-only" }, inMs(turn.stamps.first_sound)),
      el("td", { class: "bar-column" }, miniBar(turn)),
      el("td", { class: "wide-only" }, endOf(turn)),
    );
  }
}
