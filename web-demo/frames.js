// What the model sees: the camera's pictures that were kept, each with why.

const MAX_SHOWN = 6; // the newest
const MAX_WAITING = 8; // pictures without a verdict; the oldest goes first
const ALIKE_PERCENT = 1; // of luma: a camera's own noise; what differs less was kept for its age
const WHY_NOT = {
  too_soon: "too soon after the one before",
  unchanged: "looked like the one before",
  blurred: "less sharp than the ones around",
  enough: "over the limit of a turn, or of the time between two",
  refused: "while the server was too busy to look",
  replaced: "a newer one came first",
  broken: "could not be decoded",
  unsent: "came while no model could look",
};

/** Why a picture was kept, for people. */
export function whyKept({ changed, since_kept_ms: sinceMs }) {
  if (changed == null) return "the first picture";
  const spanS = sinceMs == null ? null : (sinceMs / 1_000).toFixed(sinceMs < 9_950 ? 1 : 0);
  const seconds = spanS === null ? "" : `, ${spanS} s later`;
  const percent = 100 * changed;
  if (percent < ALIKE_PERCENT && spanS !== null) return `another look after ${spanS} s`;
  return `${percent < 9.95 ? percent.toFixed(1) : Math.round(percent)} % different${seconds}`;
}

export class Frames {
  constructor() {
    this.waiting = new Map(); // event id → data URI
    this.kept = []; // {id, url, why}, newest first
    this.counts = new Map(); // verdict → how many
    this.made = 0;
  }

  /** @returns {string} the event id under which a picture is to be sent */
  offer(base64) {
    this.made += 1;
    const id = `frame_${this.made}`;
    this.waiting.set(id, `data:image/jpeg;base64,${base64}`);
    if (this.waiting.size > MAX_WAITING) this.waiting.delete(this.waiting.keys().next().value);
    return id;
  }

  /** A `gateway.frame.judged`. */
  judged(event) {
    const { frame_event_id: id, verdict } = event;
    const url = this.waiting.get(id);
    this.waiting.delete(id);
    this.counts.set(verdict, (this.counts.get(verdict) ?? 0) + 1);
    if (verdict !== "kept" || !url) return;
    this.kept.unshift({ id, url, why: whyKept(event) });
    this.kept.splice(MAX_SHOWN);
  }

  /** "3 of 12 pictures kept; left out: 9 looked like the one before" */
  get sentence() {
    const all = [...this.counts.values()].reduce((sum, count) => sum + count, 0);
    const left = [...this.counts].filter(([verdict]) => verdict !== "kept");
    const why = left.map(([verdict, count]) => `${count} ${WHY_NOT[verdict] ?? verdict}`).join(", ");
    return `${this.counts.get("kept") ?? 0} of ${all} kept.${why && ` Left out: ${why}.`}`;
  }
}

/** @param {Record<string, HTMLElement>} at panel, list, words */
export function drawFrames(at, frames) {
  at.panel.hidden = frames.counts.size === 0;
  at.words.textContent = frames.sentence;
  const known = new Map([...at.list.children].map((row) => [row.dataset.id, row]));
  const rows = frames.kept.map(({ id, url, why }) => known.get(id) ?? thumbnail(id, url, why));
  at.list.replaceChildren(...rows);
}

function thumbnail(id, url, why) {
  const row = document.createElement("li");
  row.dataset.id = id;
  const image = document.createElement("img");
  image.src = url;
  image.alt = "A picture that the model has seen";
  const words = document.createElement("span");
  words.textContent = why;
  row.append(image, words);
  return row;
}
