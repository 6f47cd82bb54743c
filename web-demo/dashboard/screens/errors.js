// Errors by code, newest first, each with the turn that it ended.

import { el, keyed, scroller, setText } from "../dom.js";
import { clock, many, shortId } from "../units.js";
import { turnLink } from "./turn-list.js";

const SHOWN = 200;

export class ErrorsScreen {
  constructor(app) {
    this.app = app;
    this.code = null;
    this.codes = el("div", { class: "chips", role: "group", "aria-label": "Errors by code" });
    this.body = el("tbody");
    this.said = el("p", { class: "small" });
    this.table = scroller(
      "Errors",
      el(
        "table",
        {},
        el("caption", { class: "unseen" }, "Errors, newest first"),
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ...["When", "Code", "Message", "Turn or session"].map((text) =>
              el("th", { scope: "col" }, text),
            ),
          ),
        ),
        this.body,
      ),
    );
    this.node = el(
      "section",
      { id: "errors", "aria-labelledby": "errors-title" },
      el("div", { class: "title-row" }, el("h2", { id: "errors-title" }, "Errors"), this.said),
      this.codes,
      this.table,
    );
  }

  draw(store) {
    const counts = new Map();
    for (const { code } of store.errors) counts.set(code, (counts.get(code) ?? 0) + 1);
    if (!counts.has(this.code)) this.code = null;
    const chips = [[null, store.errors.length], ...[...counts].sort((a, b) => b[1] - a[1])];
    keyed(
      this.codes,
      store.errors.length ? chips : [],
      ([code]) => String(code),
      ([code]) => el("button", { type: "button", onclick: () => this.choose(code) }),
      (node, [code, n]) => {
        setText(node, `${code ?? "All"} ${n}`);
        node.setAttribute("aria-pressed", String(code === this.code));
      },
    );
    const errors = store.errors
      .filter(({ code }) => this.code === null || code === this.code)
      .slice(-SHOWN)
      .reverse();
    this.table.hidden = errors.length === 0;
    keyed(
      this.body,
      errors,
      (error) => `${error.run}/${error.seq}`,
      (error) =>
        el(
          "tr",
          {},
          el("td", {}, clock(error.atMs)),
          el("th", { scope: "row" }, error.code),
          el("td", { class: "message" }, error.message),
          el(
            "td",
            {},
            error.turn ? turnLink(error.turn) : error.session ? shortId(error.session) : "–",
          ),
        ),
      () => {},
    );
    setText(
      this.said,
      store.errors.length ? many(store.errors.length, "error") : "No errors. May it stay so.",
    );
  }

  choose(code) {
    this.code = code;
    this.app.redraw(true);
  }
}
