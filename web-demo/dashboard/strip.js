// The strip: eight tiles, each a number, a word and a colour, and a link to its screen.

import { el, setText } from "./dom.js";
import { tiles } from "./data/health.js";

const QUIET_MS = 10_000; // an announcement is heard out before the next

export class Strip {
  constructor(list, announcer) {
    this.list = list;
    this.announcer = announcer;
    this.nodes = new Map();
    this.levels = new Map();
    this.announcedAtMs = -Infinity;
  }

  draw(store) {
    const all = tiles(store);
    for (const tile of all) {
      const parts = this.nodes.get(tile.id) ?? this.create(tile);
      parts.item.dataset.level = tile.level;
      setText(parts.value, tile.value);
      setText(parts.word, tile.word);
      setText(parts.note, tile.note);
    }
    this.announce(all);
  }

  create({ id, title, about, screen }) {
    const parts = {
      value: el("strong"),
      word: el("span", { class: "word" }),
      note: el("span", { class: "note small" }),
    };
    const head = el(
      "span",
      { class: "tile-head" },
      el("span", { class: "tile-title" }, title),
      parts.word,
    );
    parts.item = el(
      "li",
      { class: "tile", id: `tile-${id}` },
      el("a", { href: `#screen=${screen}`, title: about }, head, parts.value, parts.note),
    );
    this.list.append(parts.item);
    this.nodes.set(id, parts);
    return parts;
  }

  /** Only what got bad, or well again, is worth interrupting somebody who listens. */
  announce(all) {
    const changed = all.filter(({ id, level }) => {
      const before = this.levels.get(id);
      return before && (before === "bad") !== (level === "bad") && level !== "none";
    });
    const now = performance.now();
    if (changed.length && now - this.announcedAtMs < QUIET_MS) return; // found again next time
    for (const { id, level } of all) this.levels.set(id, level);
    if (!changed.length) return;
    this.announcedAtMs = now;
    setText(
      this.announcer,
      changed
        .map(
          ({ title, value, level }) =>
            `${title} ${value}: ${level === "bad" ? "act" : "no longer bad"}`,
        )
        .join(". "),
    );
  }
}
