// Who is connected: one line a session, to be sorted, filtered and pinned; opened, its live timeline.

import { el, keyed, scroller, setAttribute, setText } from "../dom.js";
import { drawSparkline, miniBar, sparkline } from "../charts/mini.js";
import { age, clock, count, inMs, percent, roughAge, shortId } from "../units.js";
import { enginesOf } from "./engine.js";
import { turnLink, TurnList } from "./turn-list.js";

const TURNS_SHOWN = 12;
const SPARKLINE_STEP = 4; // a line of sixty values is drawn again after so many new ones
const SKIPPED_MS = 5_000; // what is out of sight is filled in so often, for screen readers
const MODALITIES = ["text", "audio", "image", "generated"];

const COLUMNS = [
  { name: "id", title: "Session", value: (row) => row.id },
  { name: "transport", title: "Transport", value: (row) => row.transport ?? "", wide: true },
  {
    name: "engine",
    title: "Engine",
    value: (row) => row.engine ?? "",
    ofSeveral: true,
    wide: true,
  },
  { name: "state", title: "State", value: (row) => row.state ?? "" },
  { name: "turns", title: "Turns", value: (row) => row.turns ?? 0, number: true, wide: true },
  {
    name: "last",
    title: "Last turn",
    value: (row, store) => store.turns.get(row.last_turn)?.totalMs ?? -1,
  },
  { name: "headroom", title: "Headroom", value: (row) => row.headroom_percent ?? 1e9 },
  {
    name: "kv",
    title: "KV tokens",
    value: (row) => row.kv?.tokens ?? -1,
    number: true,
    wide: true,
  },
  { name: "loss", title: "Loss, jitter", value: (row) => row.rtc?.lost_share ?? -1, wide: true },
  { name: "age", title: "Age", value: (row) => row.age_s ?? 0, number: true, wide: true },
];

const kindsOf = ({ number, wide, ofSeveral }) =>
  [number && "number", wide && "wide-only", ofSeveral && "of-several"].filter(Boolean).join(" ") ||
  null;

export class SessionsScreen {
  constructor(app) {
    this.app = app;
    this.sort = { name: "age", falling: true };
    this.pinned = new Set();
    this.openId = null;
    this.filter = el("input", {
      type: "search",
      placeholder: "id, engine, state…",
      oninput: () => app.redraw(true),
    });
    // The rows are laid out one by one (dashboard.css), so their roles have to be said.
    this.body = el("tbody", { role: "rowgroup" });
    this.heads = COLUMNS.map((column) => this.heading(column));
    this.empty = el("p", { class: "empty" });
    this.shown = el("p", { class: "small" });
    this.detail = el("section", {
      class: "card",
      hidden: true,
      "aria-label": "Live timeline of one session",
    });
    this.node = el(
      "section",
      { id: "sessions", "aria-labelledby": "sessions-title" },
      el(
        "div",
        { class: "title-row" },
        el("h2", { id: "sessions-title" }, "Sessions"),
        el("label", { class: "field" }, "Filter ", this.filter),
        this.shown,
      ),
      scroller(
        "Sessions",
        (this.table = el(
          "table",
          { class: "sessions", role: "table" },
          el("caption", { class: "unseen" }, "Open sessions"),
          el(
            "thead",
            { role: "rowgroup" },
            el(
              "tr",
              { role: "row" },
              ...this.heads,
              el(
                "th",
                { scope: "col", role: "columnheader" },
                el("span", { class: "unseen" }, "Pin"),
              ),
            ),
          ),
          this.body,
        )),
      ),
      this.empty,
      this.detail,
    );
  }

  heading(column) {
    const button = el(
      "button",
      { type: "button", class: "sort", onclick: () => this.sortBy(column) },
      column.title,
    );
    return el("th", { scope: "col", role: "columnheader", class: kindsOf(column) }, button);
  }

  sortBy({ name }) {
    this.sort = { name, falling: this.sort.name === name ? !this.sort.falling : true };
    this.app.redraw(true);
  }

  draw(store) {
    COLUMNS.forEach(({ name }, i) => {
      if (name === this.sort.name)
        this.heads[i].setAttribute("aria-sort", this.sort.falling ? "descending" : "ascending");
      else this.heads[i].removeAttribute("aria-sort");
    });
    this.table.classList.toggle("several-engines", enginesOf(store).length > 1);
    const rows = this.rows(store);
    keyed(
      this.body,
      rows,
      (row) => row.id,
      (row) => this.create(row),
      (node, row) => this.update(node, row, store),
    );
    setText(
      this.shown,
      rows.length === store.rows.length ? "" : `${rows.length} of ${store.rows.length} shown`,
    );
    this.empty.hidden = rows.length > 0;
    setText(
      this.empty,
      store.rows.length
        ? "No session fits the filter."
        : "Nobody is connected. A session appears here the moment somebody talks.",
    );
    this.drawDetail(store);
  }

  rows(store) {
    const wanted = this.filter.value.trim().toLowerCase();
    const fits = (row) => `${row.id} ${row.transport} ${row.engine ?? ""} ${row.state}`.toLowerCase().includes(wanted);
    const { value } = COLUMNS.find(({ name }) => name === this.sort.name);
    const sign = this.sort.falling ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [value(a, store), value(b, store)];
      return typeof x === "string" ? x.localeCompare(y) : x - y;
    };
    return store.rows
      .filter(fits)
      .sort(
        (a, b) =>
          this.pinned.has(b.id) - this.pinned.has(a.id) ||
          sign * compare(a, b) ||
          a.id.localeCompare(b.id),
      );
  }

  create(row) {
    const open = el(
      "button",
      {
        type: "button",
        class: "link",
        title: row.id,
        "aria-expanded": "false",
        onclick: () => this.toggle(row.id),
      },
      shortId(row.id),
    );
    const pin = el(
      "button",
      {
        type: "button",
        class: "pin",
        "aria-pressed": "false",
        "aria-label": `Pin ${row.id}`,
        onclick: () => this.pin(row.id),
      },
      "Pin",
    );
    const cells = Object.fromEntries(
      COLUMNS.slice(1).map((column) => [
        column.name,
        el("td", { role: "cell", class: kindsOf(column) }),
      ]),
    );
    cells.state.append(el("span", { class: "state" }));
    cells.headroom.append(sparkline(), el("span"));
    const node = el(
      "tr",
      { role: "row" },
      el("th", { scope: "row", role: "rowheader" }, open),
      ...Object.values(cells),
      el("td", { role: "cell" }, pin),
    );
    const isNew = { lastTurn: null, row: null, isSkipped: false, filledMs: 0, lineSeen: 0 };
    node.parts = { open, pin, cells, ...isNew };
    // What is out of sight is not laid out (dashboard.css), and is filled in less often.
    node.addEventListener("contentvisibilityautostatechange", ({ skipped }) => {
      node.parts.isSkipped = skipped;
      const now = skipped ? null : this.app.store.rows.find(({ id }) => id === row.id);
      if (now) this.update(node, now, this.app.store);
    });
    return node;
  }

  update(node, row, store) {
    const { open, pin, cells, isSkipped, filledMs } = node.parts;
    const nowMs = performance.now();
    if (isSkipped && nowMs - filledMs < SKIPPED_MS) return;
    node.parts.filledMs = nowMs;
    setAttribute(open, "aria-expanded", String(this.openId === row.id));
    setAttribute(pin, "aria-pressed", String(this.pinned.has(row.id)));
    this.updateTurn(node, row, store);
    if (node.parts.row === row) return; // nothing new of it since the last second
    node.parts.row = row;
    setText(cells.transport, row.transport ?? "–");
    setText(cells.engine, row.engine ?? "–");
    const state = cells.state.firstElementChild;
    setText(state, row.state ?? "–");
    setAttribute(state, "data-state", row.state ?? "");
    setText(cells.turns, count(row.turns));
    setText(cells.age, roughAge(row.age_s));
    this.updateHeadroom(cells.headroom, row);
    const line = store.sparklines.get(row.id);
    if (line && (node.parts.lineSeen === 0 || line.seen - node.parts.lineSeen >= SPARKLINE_STEP)) {
      const isDrawn = drawSparkline(cells.headroom.firstElementChild, line.values);
      node.parts.lineSeen = isDrawn ? line.seen : 0;
    }
    const parts = MODALITIES.filter((name) => row.kv?.by_modality?.[name]).map(
      (name) => `${name} ${count(row.kv.by_modality[name])}`,
    );
    setText(cells.kv, count(row.kv?.tokens));
    const evicted = row.kv?.evicted ? `evicted ${count(row.kv.evicted)}` : "";
    setAttribute(cells.kv, "title", [...parts, evicted].filter(Boolean).join(", "));
    setText(
      cells.loss,
      row.rtc ? `${percent(row.rtc.lost_share)}, ${inMs(row.rtc.jitter_ms)}` : "–",
    );
  }

  updateTurn(node, row, store) {
    const turn = store.turns.get(row.last_turn);
    const key = turn ? `${turn.id}/${turn.revision}` : row.last_turn;
    if (node.parts.lastTurn === key) return;
    node.parts.lastTurn = key;
    const shown = turn
      ? [turnLink(turn.id, inMs(turn.totalMs)), miniBar(turn)]
      : [row.last_turn ? turnLink(row.last_turn) : "–"];
    node.parts.cells.last.replaceChildren(el("span", { class: "last-turn" }, ...shown));
  }

  updateHeadroom(cell, row) {
    const value = row.headroom_percent;
    const text = value == null ? "–" : `${Math.round(value)} %`;
    const overruns = row.overruns ? `, ${row.overruns} over` : "";
    const [, said] = cell.children;
    setAttribute(said, "class", value < 0 ? "bad" : "");
    setText(said, ` ${text}${overruns}`);
  }

  pin(id) {
    if (!this.pinned.delete(id)) this.pinned.add(id);
    this.app.redraw(true);
  }

  toggle(id) {
    this.openId = this.openId === id ? null : id;
    this.app.watchChunks(this.openId !== null);
    this.timeline = null;
    this.app.redraw(true);
  }

  drawDetail(store) {
    const row = store.rows.find(({ id }) => id === this.openId);
    this.detail.hidden = this.openId === null;
    if (this.openId === null) return;
    if (!this.timeline) this.timeline = this.createTimeline();
    const { state, chunks, list, events, said } = this.timeline;
    setText(
      state,
      row
        ? `${row.state}${row.engine ? ` at ${row.engine}` : ""}, ${count(row.kv?.tokens)} KV tokens, ${age(row.age_s)} old`
        : "This session is over.",
    );
    const newest = store.chunks.get(this.openId) ?? [];
    keyed(
      chunks,
      newest.slice(-60),
      (chunk) => String(chunk.start_sample),
      () => el("span"),
      (bar, chunk) => {
        const share = 1 - (chunk.headroom_percent ?? 100) / 100;
        bar.className = chunk.overrun ? "chunk late" : "chunk";
        bar.style.height = `${Math.max(3, Math.min(100, 100 * share))}%`;
        bar.title = `${inMs(chunk.latency_ms)} for ${inMs(chunk.duration_ms)} of sound${chunk.rolled_back ? `, ${chunk.rolled_back} rolled back` : ""}`;
      },
    );
    const last = newest.at(-1);
    setText(
      said,
      last
        ? `Newest chunk: ${inMs(last.latency_ms)} for ${inMs(last.duration_ms)} of sound, ${Math.round(last.headroom_percent)} % headroom.`
        : "Chunks appear here while this session speaks.",
    );
    const turns = [...store.turns.values()]
      .filter((turn) => turn.session === this.openId)
      .slice(-TURNS_SHOWN)
      .reverse();
    list.draw(turns);
    const mine = store.events.filter((event) => event.session === this.openId);
    setText(events, mine.map((event) => `${clock(event.atMs)} ${event.what}`).join(" · "));
  }

  createTimeline() {
    const parts = {
      state: el("p"),
      said: el("p", { class: "small" }),
      events: el("p", { class: "small" }),
      chunks: el("div", { class: "chunk-bars", "aria-hidden": "true" }),
      list: new TurnList("Turns of this session"),
    };
    const close = el(
      "button",
      { type: "button", onclick: () => this.toggle(this.openId) },
      "Close",
    );
    this.detail.replaceChildren(
      el("div", { class: "title-row" }, el("h3", {}, this.openId), close),
      parts.state,
      parts.chunks,
      parts.said,
      scroller("Turns of this session", parts.list.node),
      parts.events,
    );
    return parts;
  }
}
