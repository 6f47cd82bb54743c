// Captions: the words that are being said, large. Words that may still change are in italics.

import { recall, remember } from "./store.js";

const SIZES_REM = [1.25, 1.6, 2, 2.6, 3.4];
const USUAL = 1; // of SIZES_REM

const byId = (id) => document.getElementById(id);

export class Captions {
  constructor() {
    this.panel = byId("captions");
    this.box = byId("captions-on");
    this.who = byId("captions-who");
    this.words = byId("captions-words");
    this.tentative = byId("captions-tentative");
    this.smaller = byId("captions-smaller");
    this.larger = byId("captions-larger");
    this.size = Number(recall("captions.size", String(USUAL)));
    if (!(this.size in SIZES_REM)) this.size = USUAL;
    this.box.checked = recall("captions.on") === "yes";
    this.box.addEventListener("change", () => this.show());
    this.smaller.addEventListener("click", () => this.resize(-1));
    this.larger.addEventListener("click", () => this.resize(1));
    this.resize(0);
    this.show();
  }

  toggle() {
    this.box.checked = !this.box.checked;
    this.show();
  }

  show() {
    this.panel.hidden = !this.box.checked;
    remember("captions.on", this.box.checked ? "yes" : "");
  }

  resize(by) {
    this.size = Math.max(0, Math.min(SIZES_REM.length - 1, this.size + by));
    this.panel.style.setProperty("--caption-size", `${SIZES_REM[this.size]}rem`);
    this.smaller.disabled = this.size === 0;
    this.larger.disabled = this.size === SIZES_REM.length - 1;
    remember("captions.size", this.size === USUAL ? "" : String(this.size));
  }

  /** @param {object[]} entries of the conversation, oldest first */
  draw(entries) {
    if (this.panel.hidden) return;
    const entry = entries.findLast(({ role, text, tentative }) => role !== "break" && (text || tentative));
    this.who.textContent = entry ? { user: "You", assistant: "Answer" }[entry.role] ?? "" : "";
    const words = entry?.text ?? "What is said appears here.";
    if (this.words.textContent !== words) this.words.textContent = words;
    const tentative = entry?.tentative ?? "";
    if (this.tentative.textContent !== tentative) this.tentative.textContent = tentative;
    this.words.parentElement.scrollTop = this.words.parentElement.scrollHeight; // the newest words
  }
}
