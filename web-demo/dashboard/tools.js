// The buttons above: save the feed, open a recording, export what is loaded.

import { el } from "./dom.js";
import { toCsv, toJson, toPerfetto } from "./files/export.js";
import { openInPerfetto, PERFETTO } from "./files/perfetto.js";
import { canRecord, download, stamp } from "./files/recorder.js";
import { many } from "./units.js";

const byId = (id) => document.getElementById(id);

export class Tools {
  constructor(app, node) {
    this.app = app;
    const file = el("input", {
      type: "file",
      class: "unseen",
      tabindex: "-1",
      "aria-label": "A recording",
      accept: ".gz,.jsonl,.json,.ndjson",
      onchange: () => this.open(file),
    });
    this.save = el(
      "button",
      {
        type: "button",
        disabled: !canRecord,
        title: canRecord
          ? "The feed so far, at most the last hour, as gzipped JSON lines"
          : "This browser cannot write gzip",
        onclick: () => this.saveFeed(),
      },
      "Save feed",
    );
    this.menu = el(
      "details",
      { class: "menu" },
      el("summary", {}, "Export"),
      el(
        "div",
        { class: "menu-items" },
        this.item("JSON", () => this.saveText("json", "application/json", toJson)),
        this.item("CSV", () => this.saveText("csv", "text/csv", toCsv)),
        this.item("Perfetto trace", () => this.saveTrace()),
        this.item("Open in Perfetto…", () => this.leave()),
      ),
    );
    node.append(
      el(
        "button",
        { type: "button", id: "open-recording", onclick: () => file.click() },
        "Open recording",
      ),
      file,
      this.save,
      this.menu,
    );
    this.closeOnEscape();
    this.dropping();
    byId("leave-open").addEventListener("click", () => this.hand());
    byId("leave-save").addEventListener("click", () => {
      byId("leave").close();
      this.saveTrace();
    });
    byId("leave-cancel").addEventListener("click", () => byId("leave").close());
  }

  item(text, action) {
    return el(
      "button",
      {
        type: "button",
        onclick: () => {
          this.menu.open = false;
          if (this.hasTurns()) action();
        },
      },
      text,
    );
  }

  closeOnEscape() {
    this.menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.menu.open = false;
      this.menu.querySelector("summary").focus();
    });
    document.addEventListener("click", ({ target }) => {
      if (!this.menu.contains(target)) this.menu.open = false;
    });
  }

  dropping() {
    const isFile = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
    addEventListener("dragover", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      byId("drop").hidden = false;
    });
    addEventListener("dragleave", ({ relatedTarget }) => {
      if (relatedTarget === null) byId("drop").hidden = true;
    });
    addEventListener("drop", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      byId("drop").hidden = true;
      if (event.dataTransfer.files[0]) this.app.replay.open(event.dataTransfer.files[0]);
    });
  }

  open(input) {
    const [file] = input.files;
    input.value = ""; // the same file again is a change, too
    if (file) this.app.replay.open(file);
  }

  hasTurns() {
    const { size } = this.app.store.turns;
    if (size === 0) this.app.notice("There is no turn to export yet.");
    return size > 0;
  }

  async saveFeed() {
    if (this.app.recorder.messages === 0) {
      this.app.notice("Nothing has come over the feed yet, so there is nothing to save.");
      return;
    }
    download(await this.app.recorder.save(), `${stamp()}.jsonl.gz`);
  }

  saveText(ending, type, write) {
    download(new Blob([write(this.app.store)], { type }), `${stamp()}.${ending}`);
  }

  saveTrace() {
    download(new Blob([toPerfetto(this.app.store)]), `${stamp()}.perfetto-trace`);
  }

  leave() {
    byId("leave").showModal();
    byId("leave-open").focus();
  }

  async hand() {
    byId("leave").close();
    const { store } = this.app;
    const taken = await openInPerfetto(
      toPerfetto(store),
      `headstart, ${many(store.turns.size, "turn")}`,
    );
    if (!taken)
      this.app.notice(
        `${PERFETTO.slice(8)} did not answer, or the browser blocked its tab. Save the trace, and open it there.`,
      );
  }
}
