// A recording on the page: open it, and play it at any pace.

import { el, setText } from "./dom.js";
import { Player, RATES } from "./files/player.js";
import { RecordingError } from "./files/reader.js";
import { TURNS_KEPT } from "./data/store.js";
import { age, bytes, many } from "./units.js";

export class Replay {
  constructor(app, node) {
    this.app = app;
    this.node = node;
    this.player = null;
    this.name = el("b");
    this.said = el("span", { class: "small", role: "status" });
    this.where = el("span", { class: "small when" });
    this.play = el("button", { type: "button", onclick: () => this.toggle() }, "Play");
    this.step = el(
      "button",
      { type: "button", onclick: () => this.guard((player) => player.step()) },
      "Next turn",
    );
    this.start = el(
      "button",
      { type: "button", onclick: () => this.guard((player) => player.seek(player.firstMs ?? 0)) },
      "To the start",
    );
    this.rate = el(
      "select",
      {
        onchange: () => {
          if (this.player) this.player.rate = Number(this.rate.value);
        },
      },
      ...RATES.map((rate) => el("option", { value: String(rate) }, `${rate}×`)),
    );
    this.rate.value = "1";
    this.bar = el("input", {
      type: "range",
      min: "0",
      max: "1000",
      value: "1000",
      "aria-label": "Position in the recording",
      onchange: () => this.seek(),
    });
    const close = el("button", { type: "button", onclick: () => this.close() }, "Back to live");
    node.append(
      el("p", {}, this.name, " ", this.said),
      el(
        "div",
        { class: "buttons" },
        this.play,
        this.step,
        this.start,
        el("label", { class: "field" }, "Speed ", this.rate),
        this.bar,
        this.where,
        close,
      ),
    );
  }

  get store() {
    return this.player?.store ?? null;
  }

  /** @param {File} file opens it and reads it to its end; what is wrong with it is said */
  async open(file) {
    this.player?.stop();
    this.app.notice("");
    const player = new Player(file, { onChange: () => this.app.redraw() });
    player.rate = Number(this.rate.value);
    const before = this.player;
    this.player = player;
    this.node.hidden = false;
    setText(this.name, file.name);
    this.app.redraw(true);
    try {
      await player.load();
    } catch (error) {
      if (!(error instanceof RecordingError)) throw error;
      if (this.player === player) this.player = null;
      player.stop();
      this.node.hidden = true;
      this.app.notice(error.message);
    }
    before?.stop();
    this.app.redraw(true);
  }

  /** Runs something of the player's; what goes wrong with the file is said, not thrown. */
  async guard(action) {
    if (!this.player) return;
    try {
      await action(this.player);
    } catch (error) {
      if (!(error instanceof RecordingError)) throw error;
      this.app.notice(error.message);
    }
    this.app.redraw(true);
  }

  toggle() {
    if (this.player?.isPlaying) this.player.isPlaying = false;
    else this.guard((player) => player.play());
    this.app.redraw(true);
  }

  seek() {
    const share = Number(this.bar.value) / 1_000;
    this.guard(({ firstMs, lastMs }) =>
      this.player.seek((firstMs ?? 0) + share * ((lastMs ?? 0) - (firstMs ?? 0))),
    );
  }

  close() {
    this.player?.stop();
    this.player = null;
    this.node.hidden = true;
    this.app.notice("");
    this.app.redraw(true);
  }

  draw() {
    const { player } = this;
    if (!player) return;
    setText(this.play, player.isPlaying ? "Pause" : "Play");
    const { firstMs, lastMs, atMs, reader, store, file } = player;
    const isKnown = firstMs !== null && lastMs !== null;
    for (const control of [this.play, this.step, this.start, this.bar]) control.disabled = !isKnown;
    if (isKnown && document.activeElement !== this.bar)
      this.bar.value = String(
        Math.round((1_000 * (atMs - firstMs)) / Math.max(1, lastMs - firstMs)),
      );
    setText(
      this.where,
      isKnown ? `${age((atMs - firstMs) / 1_000)} of ${age((lastMs - firstMs) / 1_000)}` : "",
    );
    this.bar.setAttribute("aria-valuetext", this.where.textContent);
    setText(this.said, this.sentence(player, isKnown, reader, store, file));
  }

  sentence(player, isKnown, reader, store, file) {
    if (!isKnown && player.isLoading)
      return `Reading: ${bytes(reader.bytesRead)} of ${bytes(file.size)}`;
    const turns = player.isPlaying ? "" : many(store.turnsSeen, "turn");
    const kept =
      store.turnsSeen > TURNS_KEPT
        ? `, of which the newest ${TURNS_KEPT.toLocaleString("en")} are kept`
        : "";
    return `${turns}${turns ? `${kept}. ` : ""}${reader.remarks}`;
  }
}
