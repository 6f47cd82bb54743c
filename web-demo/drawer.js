// The event drawer: what the page and the server said to each other.

import { bytes } from "./dashboard/units.js";
import { el, keyed, setText } from "./dashboard/dom.js";

const PERIOD_MS = 250; // between two drawings
const SHOWN = 300; // rows; the filter reaches the older ones

const byId = (id) => document.getElementById(id);

export class Drawer {
  /** @param {import("./event-log.js").EventLog} log */
  constructor(log) {
    this.log = log;
    this.panel = byId("drawer");
    this.button = byId("events");
    this.list = byId("drawer-list");
    this.about = byId("drawer-about");
    this.words = byId("drawer-filter");
    this.direction = byId("drawer-direction");
    this.timer = null;
    log.onChange = () => this.soon();
    this.button.addEventListener("click", () => this.toggle());
    byId("drawer-close").addEventListener("click", () => this.toggle());
    byId("drawer-save").addEventListener("click", () => this.save());
    byId("drawer-clear").addEventListener("click", () => log.clear());
    this.words.addEventListener("input", () => this.soon());
    this.direction.addEventListener("change", () => this.soon());
  }

  toggle() {
    this.panel.hidden = !this.panel.hidden;
    this.button.setAttribute("aria-expanded", String(!this.panel.hidden));
    if (this.panel.hidden) this.button.focus();
    else this.draw();
  }

  /** At most every so often, and never while it is shut. */
  soon() {
    if (this.panel.hidden) return;
    this.timer ??= setTimeout(() => this.draw(), PERIOD_MS);
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = null;
    const { log, list } = this;
    const found = log.matching(this.words.value, this.direction.value);
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    keyed(list, found.slice(-SHOWN), ({ id }) => String(id), (entry) => this.row(entry), (row, entry) => this.update(row, entry));
    const older = found.length > SHOWN ? `, the newest ${SHOWN} shown` : "";
    const dropped = log.dropped ? `, ${log.dropped} older ones dropped` : "";
    setText(this.about, `${found.length} of ${log.entries.length}${older}${dropped}`);
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  row(entry) {
    const sent = entry.direction === "sent";
    const content = el("pre", { tabindex: "0", "aria-label": `Content of ${entry.type}` });
    const details = el("details", {},
      el("summary", {},
        el("span", { class: `way ${entry.direction}` }, sent ? "↑" : "↓", el("span", { class: "unseen" }, sent ? "sent" : "received")),
        el("span", { class: "at" }), el("span", { class: "type" }, entry.type), el("span", { class: "count" })),
      content);
    details.addEventListener("toggle", () => setText(content, details.open ? this.log.textOf(entry) : ""));
    return el("li", {}, details);
  }

  update(row, entry) {
    const run = entry.count > 1;
    const until = run ? `–${Math.round(entry.lastMs)}` : "";
    setText(row.querySelector(".at"), `${Math.round(entry.atMs)}${until} ms`);
    const facts = [run && `× ${entry.count}`, entry.bytes > 0 && bytes(entry.bytes)];
    setText(row.querySelector(".count"), facts.filter(Boolean).join(" · "));
    const details = row.firstElementChild;
    if (details.open) setText(details.lastElementChild, this.log.textOf(entry));
  }

  save() {
    const url = URL.createObjectURL(new Blob([this.log.save()], { type: "application/json" }));
    const link = el("a", { href: url, download: "headstart-events.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1_000);
  }
}
