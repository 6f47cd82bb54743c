// One turn: its waterfall, the same as a table in which each wait names its owner, and the facts.

import { el, scroller, setText, table } from "../dom.js";
import { endpointOf, instantsOf, waterfall } from "../charts/waterfall.js";
import { waitsOf } from "../charts/mini.js";
import { leftOutAs } from "../data/turn.js";
import { inOrder, ownerOf, stageOf } from "../stages.js";
import { bytes, clock, count, inMs } from "../units.js";
import { endOf, TurnList } from "./turn-list.js";

const LISTED = 25;
const ANCHORS = {
  captured: "from the capture of the last sound",
  departed: "from when the last sound left the caller, as estimated",
  received: "from the receipt of the last sound",
  requested: "from the request",
};

export class TurnScreen {
  constructor(app) {
    this.app = app;
    this.id = null; // null: the newest one is followed
    this.drawn = "";
    this.isOne = false;
    this.title = el("h2", { id: "turn-title" }, "Turn");
    this.content = el("div");
    this.list = new TurnList("Newest turns");
    this.older = el("button", { type: "button", onclick: () => this.step(-1) }, "← Older");
    this.newer = el("button", { type: "button", onclick: () => this.step(1) }, "Newer →");
    this.follow = el(
      "button",
      { type: "button", "aria-pressed": "true", onclick: () => app.go("screen=turn") },
      "Follow the newest",
    );
    this.one = el("input", {
      type: "checkbox",
      onchange: () => {
        this.isOne = this.one.checked;
        this.app.redraw(true);
      },
    });
    this.copy = el("button", { type: "button", onclick: () => this.copyLink() }, "Copy link");
    this.node = el(
      "section",
      { id: "turn", "aria-labelledby": "turn-title" },
      el(
        "div",
        { class: "title-row" },
        this.title,
        el(
          "span",
          { class: "buttons" },
          this.older,
          this.newer,
          this.follow,
          this.copy,
          el("label", { class: "field" }, this.one, " One scale"),
        ),
      ),
      this.content,
      el(
        "section",
        { class: "card" },
        el("h3", {}, "Newest turns"),
        scroller("Newest turns", this.list.node),
      ),
    );
  }

  step(by) {
    const ids = [...this.app.store.turns.keys()];
    const at = ids.indexOf(this.shownId());
    const id = ids[Math.max(0, Math.min(ids.length - 1, at + by))];
    if (id) this.app.go(`turn=${encodeURIComponent(id)}`);
  }

  async copyLink() {
    const link = new URL(`#turn=${encodeURIComponent(this.shownId() ?? "")}`, location.href).href;
    try {
      await navigator.clipboard.writeText(link);
      setText(this.copy, "Copied");
    } catch {
      location.hash = new URL(link).hash; // no clipboard without https: the address bar has it
      setText(this.copy, "It is in the address bar");
    }
    setTimeout(() => setText(this.copy, "Copy link"), 2_000);
  }

  shownId() {
    return this.id ?? [...this.app.store.turns.keys()].at(-1) ?? null;
  }

  draw(store) {
    const id = this.shownId();
    const turn = store.turns.get(id);
    this.follow.setAttribute("aria-pressed", String(this.id === null));
    this.list.draw([...store.turns.values()].slice(-LISTED).reverse(), id);
    const key = `${id}/${turn?.revision}/${this.isOne}`;
    if (key === this.drawn) return;
    this.drawn = key;
    for (const button of [this.older, this.newer, this.copy]) button.disabled = !turn;
    if (!turn) {
      setText(this.title, "Turn");
      this.content.replaceChildren(
        el(
          "p",
          { class: "empty" },
          id
            ? `Turn ${id} is not among the ${count(store.turns.size)} turns kept here. It may be in a recording.`
            : "No turn yet. The first one appears here.",
        ),
      );
      return;
    }
    setText(this.title, `Turn ${turn.number ?? ""}`.trim());
    this.content.replaceChildren(
      this.headline(turn),
      el("div", { class: "card" }, waterfall(turn, { isOne: this.isOne })),
      ...tables(turn),
    );
  }

  headline(turn) {
    const verdict =
      turn.budgetMs == null || turn.totalMs === null
        ? ""
        : `${turn.overBudget ? "over" : "within"} the budget of ${inMs(turn.budgetMs)}`;
    const out = leftOutAs(turn);
    return el(
      "div",
      { class: "headline" },
      el(
        "p",
        {},
        el(
          "strong",
          { class: turn.overBudget ? "bad" : "" },
          turn.totalMs === null ? "not measured" : inMs(turn.totalMs),
        ),
        el("span", {}, ` to the first token, ${ANCHORS[turn.anchor] ?? "anchor unknown"}`),
      ),
      el(
        "p",
        { class: "small" },
        [verdict, out ? `${out}: not in the percentiles` : "", `${clock(turn.atMs)}`, turn.id]
          .filter(Boolean)
          .join(" · "),
      ),
      turn.hiddenMs > 0
        ? el(
            "p",
            { class: "small" },
            `${inMs(turn.hiddenMs)} of work was done before the endpoint, and cost nobody anything.`,
          )
        : null,
    );
  }
}

/** Work of each stage before the endpoint. */
function hiddenOf(turn) {
  const endpoint = endpointOf(turn);
  const hidden = new Map();
  for (const { stage, start, end } of turn.spans) {
    const ms = Math.max(0, Math.min(end, endpoint) - start);
    if (stage !== "queue") hidden.set(stage, (hidden.get(stage) ?? 0) + ms);
  }
  return hidden;
}

function tables(turn) {
  const hidden = hiddenOf(turn);
  const names = inOrder(new Set([...turn.stages.keys(), ...hidden.keys()]));
  const rows = names.map((name) => {
    const label = el("span", {}, el("i", { class: `swatch ${stageOf(name).row}` }), name);
    const isWaited = (turn.stages.get(name) ?? 0) > 0;
    return [
      label,
      inMs(turn.stages.get(name)),
      inMs(turn.work.get(name)),
      hidden.has(name) ? inMs(hidden.get(name)) : "–",
      isWaited ? ownerOf(turn.waits, name) : "",
    ];
  });
  const sum = waitsOf(turn).reduce((total, [, ms]) => total + ms, 0);
  const total = el(
    "p",
    { class: "small" },
    turn.totalMs === null
      ? "This turn’s stamps contradict each other or are missing: nothing is known of it."
      : `Up to the first token the parts add up to ${inMs(sum)}.`,
  );
  return [
    el(
      "section",
      { class: "card" },
      el("h3", {}, "Where the time went"),
      scroller(
        "Stages of this turn",
        table(
          "Stages of this turn",
          [
            ["Stage"],
            ["Waited", "number"],
            ["Work", "number wide-only"],
            ["Hidden work", "number"],
            ["Who owns the wait", "owner"],
          ],
          rows,
        ),
      ),
      total,
    ),
    el(
      "section",
      { class: "card" },
      el("h3", {}, "Facts"),
      el(
        "dl",
        { class: "facts" },
        ...facts(turn).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
      ),
    ),
  ];
}

function facts(turn) {
  const { message, chunks } = turn;
  const over = chunks.filter((chunk) => chunk.overrun).length;
  const rolled = chunks.reduce((sum, chunk) => sum + chunk.rolledBack, 0);
  const { usage, kv, speculation, voice, rtc } = message;
  const all = [
    ["Ended", endOf(turn)],
    ["Error", turn.error ? `${turn.error.code}: ${turn.error.message}` : null],
    [
      "Instants",
      instantsOf(turn)
        .map(([name, ms]) => `${name} ${inMs(ms)}`)
        .join(", ") || null,
    ],
    ["Session", turn.session || null],
    ["Over", [message.transport, message.model].filter(Boolean).join(", model ") || null],
    [
      "Chunks",
      chunks.length
        ? `${chunks.length}, ${over} overran, ${count(rolled)} tokens rolled back`
        : null,
    ],
    [
      "Speculation",
      speculation
        ? `${count(speculation.kept)} tokens kept, ${count(speculation.wasted)} wasted`
        : null,
    ],
    [
      "Tokens",
      usage
        ? Object.entries(usage)
            .filter(([, n]) => n != null)
            .map(([name, n]) => `${name.replaceAll("_", " ")} ${count(n)}`)
            .join(", ")
        : null,
    ],
    [
      "KV cache",
      kv
        ? `${count(kv.tokens)} tokens, ${count(kv.blocks)} blocks, ${bytes(kv.bytes)}; adopted ${count(kv.adopted)}, evicted ${count(kv.evicted)}`
        : null,
    ],
    ["Decode", message.decode_tok_s == null ? null : `${count(message.decode_tok_s)} tokens/s`],
    [
      "Voice",
      voice
        ? `${inMs(voice.audio_ms)} of sound in ${inMs(voice.total_ms)}${voice.problem ? `; ${voice.problem}` : ""}`
        : null,
    ],
    [
      "Playout",
      turn.playout
        ? `${inMs(turn.playout.delay_ms)} from sent to heard, by the ${turn.playout.source}`
        : null,
    ],
    [
      "Call",
      rtc
        ? `lost ${count(100 * (rtc.lost_share ?? 0))} %, jitter ${inMs(rtc.jitter_ms)}, buffer ${inMs(rtc.buffer_ms)}, round trip ${inMs(rtc.rtt_ms)}`
        : null,
    ],
    ["Heard", message.text?.transcript ?? null],
    ["Answer", message.text?.answer ?? null],
  ];
  return all.filter(([, value]) => value !== null).map(([name, value]) => [name, String(value)]);
}
