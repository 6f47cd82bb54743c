// The client's half of one conversation: server events in, page state out. No sockets, no DOM.
//
// `link` is how things stand with the server:
//   connecting → loading (the engine reads its weights) → open ⇄ restarting; from anywhere → lost
//   connecting ⇄ locked (the server wants a key)
// What a person sees (`phase`) follows from the link, the microphone and the turn.

import { waitSetting } from "./chip.js";

const MAX_ENTRIES = 200; // of the conversation on the page; the oldest goes first
const MAX_CHUNKS = 48; // bars of the headroom chart; the oldest goes first

export class Session {
  constructor() {
    this.link = { state: "connecting", message: "" };
    this.entries = []; // what was said, oldest first: see `addEntry`
    this.chunks = []; // last chunks' {workMs, durationMs, dueMs}: cost, length, and the time they had
    this.budget = null; // the last turn's latency budget, as in `gateway.latency.report`
    this.notice = null; // one sentence about what went wrong, for people
    this.asking = null; // one about what the browser asks the person just now
    this.silenced = false; // something else has the sound: a tap is needed to go on
    this.muted = false;
    this.byHand = false; // whether the person holds a button to talk
    this.held = false; // whether it is being held
    this.turnDetection = null; // as the server has it
    this.endpointing = null; // the same, of `server_vad`
    this.reports = new Map(); // response → its `gateway.latency.report`
    this.playouts = new Map(); // response → {ms, about}: from sent until heard
    this.microphone = "off"; // off, opening, on
    this.speaking = null; // item id of the utterance that is being spoken
    this.response = null; // id of the answer in progress
    this.waiting = false; // a turn has been put, no answer has begun
    this.model = null; // the name of the server's model
    this.llmServer = undefined; // what the LLM server that decodes can do; null: there is none
    this.voice = null; // off, loading, ready, lost: whether answers can be spoken; null: unknown
    this.kept = false; // the link is lost, and the server keeps the conversation
  }

  /**
   * @returns {string} connecting, locked, loading, restarting, lost (the link); speaking, thinking,
   *   answering (the turn); idle, opening, listening, muted (the microphone)
   */
  get phase() {
    if (this.link.state !== "open") return this.link.state;
    if (this.speaking || this.held) return "speaking";
    if (this.response && this.answer(this.response)?.text) return "answering";
    if (this.response || this.waiting) return "thinking";
    if (this.microphone === "on" && this.byHand) return "idle"; // it hears nothing until it is held
    if (this.microphone === "on" && this.muted) return "muted";
    return { off: "idle", opening: "opening", on: "listening" }[this.microphone];
  }

  /** Takes one server event; types it does not know change nothing. */
  receive(event) {
    HANDLERS[event.type]?.(this, event);
  }

  entry(id) {
    return this.entries.find((entry) => entry.id === id);
  }

  answer(responseId) {
    return this.entries.find((entry) => entry.response === responseId);
  }

  /** state: open (still growing), done, interrupted, failed. Tentative words may still change. */
  addEntry(id, role, text = "", state = "open") {
    const known = this.entry(id);
    if (known) return known;
    const entry = { id, role, text, tentative: "", state, response: null, heard: false, part: null };
    this.entries.push(entry);
    this.entries.splice(0, this.entries.length - MAX_ENTRIES);
    return entry;
  }

  removeEntry(id) {
    this.entries = this.entries.filter((entry) => entry.id !== id);
  }

  /** The server is gone, and, unless it has `kept` it, its memory of this conversation. */
  lost(message, kept = false) {
    this.link = { state: "lost", message };
    this.kept = kept;
    if (!kept) this.forgotten();
  }

  forgotten() {
    this.kept = false;
    this.speaking = null;
    this.response = null;
    this.waiting = false;
    for (const entry of this.entries) {
      if (entry.state === "open") Object.assign(entry, { state: "interrupted", tentative: "" });
    }
  }

  /** A new session with the server: what is on the page stays, but the server starts afresh. */
  opened() {
    this.link = { state: "open", message: "" };
    this.notice = null;
    const last = this.entries.at(-1);
    if (last && last.role !== "break") this.addEntry(`break ${last.id}`, "break", "", "done");
  }

  /** The same session, with all that was missed. */
  resumed() {
    this.link = { state: "open", message: "" };
    this.notice = null;
    this.kept = false;
  }
}

/** The words in an item's content, typed or heard. */
function wordsOf(item) {
  return (item.content ?? []).map((part) => part.text ?? part.transcript ?? "").join("");
}

function fail(session, message) {
  session.notice = message;
  session.waiting = false;
}

function itemAdded(session, { item }) {
  if (item.type !== "message" || item.role === "system") return;
  const typed = item.role === "user" && item.content.some((part) => part.type === "input_text");
  const entry = session.addEntry(item.id, item.role);
  if (typed) Object.assign(entry, { text: wordsOf(item), state: "done" });
}

function itemIs(session, { item }) {
  if (item.type !== "message" || item.role === "system") return;
  const entry = session.addEntry(item.id, item.role);
  entry.text = wordsOf(item);
  if (item.status !== "in_progress") Object.assign(entry, { state: "done", tentative: "" });
}

function responseDone(session, { response }) {
  session.waiting = false;
  if (session.response === response.id) session.response = null;
  const failure = response.status_details?.error;
  if (response.status === "failed") {
    fail(session, failure?.message ?? "The answer failed, and the server did not say why.");
  }
  const entry = session.answer(response.id);
  if (!entry) return;
  if (response.status === "failed") entry.state = "failed";
  else entry.state = response.status === "cancelled" ? "interrupted" : "done";
  if (!entry.text) session.removeEntry(entry.id); // interrupted before its first word
}

/** A message that was answered too early goes on: its bubble does, and the answer's is gone. */
function turnContinued(session, event) {
  const answer = event.response_id && session.answer(event.response_id);
  if (answer) session.removeEntry(answer.id);
  if (session.response === event.response_id) session.response = null;
  session.waiting = false;
  const entry = session.entry(event.continued_item_id);
  if (!entry) return;
  session.removeEntry(event.item_id); // a bubble of its own, from `speech_started`
  const part = { id: entry.id, text: entry.text };
  Object.assign(entry, { id: event.item_id, state: "open", tentative: "", committed: false, part });
}

/** What went on was dropped: the first part is a message again. Returns whether there is one. */
function partAgain(entry) {
  if (!entry?.part) return false;
  Object.assign(entry, { ...entry.part, state: "done", tentative: "", part: null });
  return true;
}

/** Notes something of a response; of the oldest nothing is known any more. */
export function keep(map, responseId, value) {
  map.set(responseId, value);
  if (map.size > MAX_ENTRIES) map.delete(map.keys().next().value);
}

function engineStatus(session, event) {
  if (event.status === "moved") return; // the conversation goes on
  if (event.status === "ready") session.link = { state: "open", message: "" };
  else session.link = { state: "restarting", message: event.message };
}

function answerGrows(session, { item_id: id, delta }) {
  const entry = session.entry(id);
  if (entry) entry.text += delta;
}

function answerIs(session, id, text) {
  const entry = session.entry(id);
  if (entry) entry.text = text;
}

const HANDLERS = {
  __proto__: null, // an event type such as "toString" names no handler
  "session.created": (session) => session.forgotten(),
  "session.updated": (session, { session: settings }) => {
    session.turnDetection = settings?.audio?.input?.turn_detection ?? null;
    session.endpointing = settings?.gateway?.endpointing ?? null;
    if (!session.kept && session.link.state !== "open") session.opened();
  },
  "gateway.session.resumed": (session) => session.resumed(),
  "conversation.item.retrieved": itemIs, // after a gap that was too long to be sent again
  "gateway.engine.status": engineStatus,
  error: (session, { error }) => fail(session, error.message),

  "input_audio_buffer.speech_started": (session, { item_id: id }) => {
    session.speaking = id;
    session.waiting = false;
    session.notice = null;
    session.addEntry(id, "user");
  },
  "input_audio_buffer.speech_stopped": (session) => {
    session.speaking = null;
    session.waiting = true;
  },
  "gateway.turn.continued": turnContinued,
  "input_audio_buffer.cleared": (session) => {
    if (session.speaking && !partAgain(session.entry(session.speaking))) {
      session.removeEntry(session.speaking);
    }
    session.speaking = null;
    if (!session.byHand) return;
    const forgotten = ({ role, state, committed }) => role === "user" && state === "open" && !committed;
    session.entries = session.entries.filter((entry) => !forgotten(entry));
  },
  "input_audio_buffer.committed": (session, { item_id: id }) => {
    Object.assign(session.addEntry(id, "user"), { committed: true, part: null });
  },
  "conversation.item.added": itemAdded,
  "conversation.item.deleted": (session, { item_id: id }) => session.removeEntry(id),

  "gateway.hearing": (session, { item_id: id, committed, tentative }) => {
    // Between two holds of the button a call's silence is heard as well.
    if (!session.entry(id) && !committed && !tentative) return;
    const entry = session.addEntry(id, "user");
    if (entry.state === "open") Object.assign(entry, { text: committed, tentative, heard: true });
  },
  "conversation.item.input_audio_transcription.delta": (session, { item_id: id, delta }) => {
    const entry = session.addEntry(id, "user");
    if (!entry.heard && delta) entry.text += delta; // a server that does not send `gateway.hearing`
  },
  "conversation.item.input_audio_transcription.completed": (session, event) => {
    const entry = session.addEntry(event.item_id, "user");
    Object.assign(entry, { text: event.transcript.trim(), tentative: "", state: "done" });
  },
  "conversation.item.input_audio_transcription.failed": (session, event) => {
    if (partAgain(session.entry(event.item_id))) {
      session.speaking = null;
      return;
    }
    const entry = session.addEntry(event.item_id, "user");
    Object.assign(entry, { tentative: "", state: "failed" });
    if (session.speaking === entry.id) session.speaking = null;
    fail(session, event.error.message);
  },

  "response.created": (session, { response }) => {
    session.response = response.id;
  },
  "response.output_item.added": (session, { response_id: id, item }) => {
    session.addEntry(item.id, "assistant").response = id;
  },
  "response.output_text.delta": answerGrows,
  "response.output_text.done": (session, { item_id: id, text }) => answerIs(session, id, text),
  "response.output_audio_transcript.delta": answerGrows,
  "response.output_audio_transcript.done": (session, { item_id: id, transcript }) =>
    answerIs(session, id, transcript),
  "gateway.voice.status": (session, { status, message }) => {
    session.voice = status;
    if (status === "lost") session.notice = `Answers are text for now: ${message}`;
  },
  "response.done": responseDone,

  "gateway.latency.report": (session, report) => {
    session.budget = report.budget;
    const setting = waitSetting(session.turnDetection, session.endpointing); // as it was then
    if (report.response_id) keep(session.reports, report.response_id, { ...report, setting });
  },
  "gateway.chunk.report": (session, report) => {
    const { stages_ms: stagesMs, duration_ms: durationMs, due_ms: dueMs = durationMs } = report;
    const workMs = Object.values(stagesMs).reduce((sum, ms) => sum + ms, 0);
    session.chunks.push({ workMs, durationMs, dueMs });
    session.chunks.splice(0, session.chunks.length - MAX_CHUNKS);
  },
};
