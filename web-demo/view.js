// Draws the page state. Every text from outside goes in as textContent, never as markup.

import { drawBudget, drawChunks, inMs } from "./budget.js";
import { Captions } from "./captions.js";
import { chipText, turnUrl } from "./chip.js";

export const PHASES = {
  connecting: "Connecting…",
  locked: "Key needed",
  loading: "Starting…",
  restarting: "Restarting…",
  lost: "Not connected",
  idle: "Ready",
  opening: "Opening mic…",
  listening: "Listening",
  muted: "Muted",
  speaking: "Hearing you",
  thinking: "Thinking…",
  answering: "Answering",
};
const HERE = "It runs on the server of this page; what you say and show goes nowhere else.";
const ELSEWHERE =
  "It runs on an LLM server, to which this page's server sends what was said and shown. This page's server recognises and speaks.";
const NOTES = { interrupted: "interrupted", failed: "failed" };
const NEAR_BOTTOM_PX = 80; // closer than this to the end, the conversation keeps scrolling along

const byId = (id) => document.getElementById(id);
const nodesById = (...ids) => Object.fromEntries(ids.map((id) => [id, byId(id)]));

export class View {
  constructor() {
    this.phase = byId("phase");
    this.talk = byId("talk");
    this.talkLabel = byId("talk-label");
    this.log = byId("log");
    this.welcome = byId("welcome");
    this.notice = byId("notice");
    this.noticeText = byId("notice-text");
    this.share = nodesById("notice-share", "notice-progress");
    this.retry = byId("retry");
    this.goOn = byId("go-on");
    this.mute = byId("mute");
    this.captions = new Captions();
    this.call = nodesById("call", "call-words");
    this.key = nodesById("key-form", "key-label", "key");
    this.server = nodesById("model-note", "model", "privacy", "voice", "voice-note");
    this.text = byId("text");
    this.send = byId("send");
    this.announcer = byId("announcer");
    this.budget = nodesById("total", "caption", "verdict", "bar", "legend", "others");
    Object.assign(this.budget, nodesById("before", "after", "hidden", "later"));
    this.budget.panel = byId("budget");
    this.budget.headStart = byId("head-start");
    this.load = nodesById("chunks", "headroom", "worst");
    this.load.panel = byId("load");
    this.follows = true; // whether the conversation is scrolled to its end, and stays there
    this.log.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.log;
      this.follows = scrollHeight - scrollTop - clientHeight < NEAR_BOTTOM_PX;
    });
    new ResizeObserver(() => this.follow()).observe(this.log);
    this.drawn = new Map(); // entry id → its nodes on the page
    this.announced = new Set(); // ids of entries that were read out
    this.drawnBudget = null;
    this.drawnChunk = null;
  }

  draw(session) {
    const { phase } = session;
    document.body.dataset.phase = phase;
    this.phase.textContent = PHASES[phase];
    this.drawControls(session);
    this.drawNotice(session);
    this.drawServer(session);
    this.drawLog(session);
    this.captions.draw(session.entries);
    if (session.budget !== this.drawnBudget) {
      this.drawnBudget = session.budget;
      this.budget.panel.hidden = false;
      drawBudget(this.budget, session.budget);
    }
    const chunk = session.chunks.at(-1);
    if (chunk && chunk !== this.drawnChunk) {
      this.drawnChunk = chunk;
      this.load.panel.hidden = false;
      drawChunks(this.load, session.chunks);
    }
  }

  drawControls({ link, microphone, byHand, held, muted }) {
    const open = link.state === "open";
    const on = microphone === "on" && !byHand;
    this.talk.disabled = !open;
    this.talk.dataset.on = String(on || held);
    setText(this.talkLabel, talkLabel({ microphone, byHand, held }));
    this.mute.disabled = !on;
    this.mute.hidden = byHand; // released is muted
    this.mute.setAttribute("aria-pressed", String(on && muted));
    this.text.disabled = !open;
    this.send.disabled = !open;
    for (const button of this.welcome.querySelectorAll("button[data-ask]")) button.disabled = !open;
  }

  drawNotice({ link, notice, asking, silenced }) {
    const locked = link.state === "locked";
    const asks = locked && this.key["key-form"].hidden;
    this.key["key-form"].hidden = !locked;
    if (asks) this.key.key.focus();
    setText(this.key["key-label"], locked ? link.message : "");
    const paused = silenced ? "Something else has the sound, such as a phone call." : null;
    const trouble = link.message || notice;
    const message = locked ? null : trouble || paused || asking;
    this.notice.hidden = !message;
    this.notice.dataset.kind = link.state === "loading" || !trouble ? "news" : "trouble";
    setText(this.noticeText, message ?? "");
    this.drawShare(link.state === "loading" ? link.share : null);
    this.retry.hidden = link.state !== "lost";
    this.goOn.hidden = !silenced;
  }

  /** How much is loaded; the number is not read out, or it would be each time that it changes. */
  drawShare(share) {
    const progress = this.share["notice-progress"];
    progress.hidden = share == null;
    progress.value = share ?? 0;
    setText(this.share["notice-share"], share == null ? "" : `${Math.floor(100 * share)} %`);
  }

  /** Which model answers, where, and whether aloud. */
  drawServer({ model, llmServer, voice }) {
    this.server["model-note"].hidden = !model;
    setText(this.server.model, model ?? "");
    const known = llmServer !== undefined; // whoever has an ephemeral secret is not told
    setText(this.server.privacy, known ? (llmServer ? ELSEWHERE : HERE) : "");
    this.server.voice.disabled = voice === "off";
    setText(this.server["voice-note"], voice === "off" ? "(this server has no voice)" : "");
  }

  /** @returns {Promise<string>} the key that somebody enters */
  keyGiven() {
    const { "key-form": form, key } = this.key;
    return new Promise((resolve) => {
      form.onsubmit = (event) => {
        event.preventDefault();
        const given = key.value.trim();
        if (!given) return;
        key.value = "";
        resolve(given);
      };
    });
  }

  drawLog(session) {
    const { entries, phase } = session;
    this.welcome.hidden = entries.length > 0;
    const ids = new Set(entries.map((entry) => entry.id));
    for (const [id, nodes] of this.drawn) {
      if (ids.has(id)) continue;
      nodes.row.remove();
      this.drawn.delete(id);
    }
    for (const entry of entries) this.drawEntry(entry, session);
    this.follow();
    this.log.classList.toggle("thinking", phase === "thinking");
  }

  follow() {
    if (this.follows) this.log.scrollTop = this.log.scrollHeight;
  }

  drawEntry(entry, session) {
    const nodes = this.drawn.get(entry.id) ?? this.newRow(entry);
    nodes.row.dataset.state = entry.state;
    setText(nodes.words, entry.text);
    setText(nodes.tentative, entry.tentative); // follows on directly, its own space included
    setText(nodes.note, noteOf(entry));
    if (entry.response) drawChip(nodes, entry.response, session);
    if (entry.state !== "open" && entry.text && !this.announced.has(entry.id)) {
      this.announced.add(entry.id);
      setText(this.announcer, `${entry.role === "user" ? "You said" : "Answer"}: ${entry.text}`);
    }
  }

  newRow({ id, role }) {
    const row = document.createElement("li");
    row.className = `entry ${role}`;
    const nodes = { row };
    for (const part of ["words", "tentative", "note"]) {
      nodes[part] = document.createElement("span");
      nodes[part].className = part;
      row.append(nodes[part]);
    }
    this.log.append(row);
    this.drawn.set(id, nodes);
    return nodes;
  }

  /** @param {?object} second of a call, as `secondOf` says; null: there is no call */
  drawCall(second) {
    this.call.call.hidden = second === null;
    if (second === null) return;
    const { buffer_ms: bufferMs, round_trip_ms: tripMs, concealed, lost } = second;
    const facts = [
      tripMs != null && `${inMs(tripMs)} there and back`,
      bufferMs != null && `${inMs(bufferMs)} of sound held against jitter`,
      concealed != null && `${(100 * concealed).toFixed(1)} % of the sound made up`,
      lost != null && `${lost} ${lost === 1 ? "packet" : "packets"} lost`,
    ].filter(Boolean);
    setText(this.call["call-words"], `${facts.join(", ") || "No sound yet"}.`);
  }

  /** @param {number} loudness 0 to 1 */
  drawLevel(loudness) {
    this.talk.style.setProperty("--level", loudness.toFixed(3));
  }
}

function talkLabel({ microphone, byHand, held }) {
  if (held) return "Release to send";
  if (byHand) return "Hold to talk";
  return { off: "Talk", opening: "Cancel", on: "Stop" }[microphone];
}

/** Under an answer: what the person waited, with the way to the turn's waterfall. */
function drawChip(nodes, responseId, { reports, playouts }) {
  const report = reports.get(responseId);
  const text = report ? chipText(report, playouts.get(responseId), report.setting) : "";
  if (!text) return;
  if (!nodes.chip) {
    nodes.chip = document.createElement("a");
    nodes.chip.className = "latency";
    nodes.chip.href = turnUrl(responseId);
    nodes.chip.target = "_blank"; // this page goes on talking
    nodes.chip.title = "Where the time went: the turn in the dashboard, in a new tab";
    nodes.row.append(nodes.chip);
  }
  setText(nodes.chip, text);
}

function noteOf({ role, state, text }) {
  if (role === "break") return "The server was away and has forgotten what is above.";
  if (role === "user" && state === "done" && !text) return "nothing was understood";
  return NOTES[state] ?? "";
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
