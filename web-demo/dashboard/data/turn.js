// A `turn` message as the page works with it: checked, with null for what nobody could measure.

const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);
const text = (value) => (typeof value === "string" ? value : null);
const record = (value) =>
  value && typeof value === "object" && !Array.isArray(value) ? value : null;
const list = (value) => (Array.isArray(value) ? value : []);

/** An object's numbers, as [name, number or null]. */
export function numbers(value) {
  return Object.entries(record(value) ?? {}).map(([name, item]) => [name, number(item)]);
}

function spanOf(span) {
  const [stage, start, end] = list(span);
  if (typeof stage !== "string" || number(start) === null || number(end) === null) return null;
  return end < start ? null : { stage, start, end };
}

function chunkOf(chunk) {
  const start = number(chunk?.start_ms);
  const duration = number(chunk?.duration_ms);
  if (start === null || duration === null) return null;
  const due = number(chunk.due_ms) ?? duration; // an older recording has none
  return {
    start,
    duration,
    due,
    deadline: start + duration + due,
    latency: number(chunk.latency_ms),
    headroom: number(chunk.headroom_percent),
    overrun: chunk.overrun === true,
    prefilled: number(chunk.prefilled),
    rolledBack: number(chunk.rolled_back) ?? 0,
  };
}

/**
 * @param {object} message as it came
 * @param {number} atMs when it came, in ms since 1970
 * @returns {object | null} null for one without an id
 */
export function readTurn(message, atMs) {
  const id = text(message.id);
  if (!id) return null;
  const stamps = Object.fromEntries(numbers(message.stamps_ms));
  const stages = new Map(numbers(message.stages_ms));
  const voice = record(message.voice);
  const playout = record(message.playout);
  if (stages.get("voice") == null && voice) stages.set("voice", voiceMs(stamps, voice));
  if (stages.get("playout") == null && playout) stages.set("playout", number(playout.delay_ms));
  const totalMs = number(message.total_ms);
  const turn = {
    id,
    atMs,
    message,
    stamps,
    stages,
    totalMs,
    revision: number(message.revision) ?? 1,
    session: text(message.session) ?? "",
    number: number(message.turn),
    anchor: text(message.anchor),
    reason: text(message.reason) ?? "completed",
    interrupted: message.interrupted === true,
    revokedMs: number(message.revoked_ms), // of its sound, played before it was taken back
    realtime: message.realtime !== false,
    budgetMs: number(message.latency_budget_ms),
    overBudget: message.over_budget === true,
    hiddenMs: number(message.hidden_ms),
    work: new Map(numbers(message.work_ms)),
    spans: list(message.spans).map(spanOf).filter(Boolean),
    chunks: list(message.chunks).map(chunkOf).filter(Boolean),
    waits: record(message.waits) ?? {},
    error: record(message.error),
    voice,
    playout,
  };
  turn.counts = totalMs !== null && !turn.interrupted && turn.realtime;
  turn.values = valuesOf(turn);
  return turn;
}

function voiceMs(stamps, voice) {
  const from = stamps.first_token ?? stamps.first_clause;
  if (stamps.first_sound != null && from != null) return Math.max(0, stamps.first_sound - from);
  return number(voice.first_sound_ms);
}

/** What goes into percentiles: [name, ms] of each stage and measure that is known. */
function valuesOf(turn) {
  if (!turn.counts) return [];
  const all = [
    ["total", turn.totalMs],
    ["first_sound", turn.stamps.first_sound],
    ["heard", turn.stamps.playout_started],
    ...turn.stages,
  ];
  return all.filter(([, ms]) => ms != null && ms >= 0);
}

/** Why a turn is left out of percentiles; null for one that counts. */
export function leftOutAs(turn) {
  if (turn.interrupted) return turn.revokedMs === null ? "interrupted" : "taken back";
  if (!turn.realtime) return "not in real time";
  return turn.totalMs === null ? "not measured" : null;
}

/** The same clip or words on two runs have the same name here; null where nothing tells. */
export function clipOf(turn) {
  const { clip, text: words } = turn.message;
  if (typeof clip === "string" && clip) return `clip ${clip}`;
  const said = words && typeof words.transcript === "string" ? words.transcript.trim() : "";
  return said ? `text ${said.toLowerCase()}` : null;
}
