// The protocol's events as they passed, for the drawer: bounded, media as sizes, runs collapsed.

const MAX_ENTRIES = 2_000; // the oldest goes first, and is counted
const MAX_TEXT = 4_000; // letters of one event's JSON
const LOOK_BACK = 12; // entries among which a run goes on, though others came between
const RUNS = /\.(delta|append)$|^gateway\.(hearing|chunk\.report|frame\.judged)$/;
const MEDIA = new Set(["audio", "image", "image_url", "delta"]);
const SECRET = new Set(["token", "client_secret"]);
const LONG_TEXT = 256; // a `delta` that is longer is sound, not words

function bytesOf(text) {
  const base64 = text.slice(text.indexOf(",") + 1);
  return Math.floor((base64.length * 3) / 4);
}

/** An event without what is secret or large: media as their sizes. */
export function without(event) {
  const replace = (key, value) => {
    if (typeof value !== "string") return value;
    if (SECRET.has(key)) return "(left out)";
    if (MEDIA.has(key) && value.length > LONG_TEXT) return `(${bytesOf(value)} bytes)`;
    return value;
  };
  return JSON.parse(JSON.stringify(event, replace));
}

function mediaBytes(event) {
  const value = event.audio ?? event.image ?? event.delta;
  const isMedia = typeof value === "string" && (value.length > LONG_TEXT || !("delta" in event));
  return isMedia ? bytesOf(value) : 0;
}

export class EventLog {
  constructor(now = () => performance.now()) {
    this.now = now;
    this.start = now();
    this.entries = []; // {id, direction, type, atMs, lastMs, count, bytes, text}, oldest first
    this.dropped = 0;
    this.made = 0;
    this.onChange = () => {};
  }

  /** @param {"sent" | "received"} direction @param {object} event */
  add(direction, event) {
    const atMs = this.now() - this.start;
    const about = event.item_id ?? event.response_id ?? "";
    const entry = this.running(direction, event.type, about) ?? this.create(direction, event.type, about, atMs);
    entry.count += 1;
    entry.lastMs = atMs;
    entry.bytes += mediaBytes(event);
    entry.event = event; // of a run the newest
    entry.text = null;
    this.onChange();
  }

  /** The entry of the run that an event goes on with. */
  running(direction, type, about) {
    if (!RUNS.test(type)) return null;
    for (const entry of this.entries.slice(-LOOK_BACK).reverse()) {
      const same = entry.direction === direction && entry.type === type;
      if (same && entry.about === about) return entry;
      if (!RUNS.test(entry.type)) return null; // what happened in between ends it
    }
    return null;
  }

  create(direction, type, about, atMs) {
    this.made += 1;
    const entry = { id: this.made, direction, type, about, atMs, lastMs: atMs, count: 0, bytes: 0 };
    this.entries.push(entry);
    const over = this.entries.length - MAX_ENTRIES;
    if (over > 0) this.dropped += this.entries.splice(0, over).length;
    return entry;
  }

  /** The JSON of an entry's (newest) event, cut to what can be read. */
  textOf(entry) {
    if (entry.text === null) {
      const whole = JSON.stringify(without(entry.event), null, 2);
      entry.text = whole.length > MAX_TEXT ? `${whole.slice(0, MAX_TEXT)}…` : whole;
    }
    return entry.text;
  }

  /** Those whose type or content has `words` in it. `direction`: "", "sent" or "received". */
  matching(words, direction) {
    const wanted = words.trim().toLowerCase();
    return this.entries.filter((entry) =>
      (!direction || entry.direction === direction) &&
      (!wanted || entry.type.includes(wanted) || this.textOf(entry).toLowerCase().includes(wanted)));
  }

  /** All that is kept, as one JSON text. */
  save() {
    const events = this.entries.map(({ direction, type, atMs, lastMs, count, bytes, event }) => ({
      direction, type, at_ms: Math.round(atMs), last_ms: Math.round(lastMs), count, media_bytes: bytes,
      event: without(event),
    }));
    return JSON.stringify({ format: "headstart.events/1", dropped: this.dropped, events }, null, 1);
  }

  clear() {
    this.entries = [];
    this.dropped = 0;
    this.onChange();
  }
}
