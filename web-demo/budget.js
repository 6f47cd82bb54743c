// The last turn's latency budget as a stacked bar, and the chunks' load as a row of small bars.

// Stages in the order in which a turn passes them, and what they mean to a person. The group gives
// the colour: wait, wires (in and out), ears, mind, voice. A text answer has none of the last.
export const STAGES = [
  ["network", "wires", "On its way here"],
  ["buffer", "wires", "Evening out the network"],
  ["resample", "wires", "Converting the sound"],
  ["vad_hangover", "wait", "Making sure you had stopped"],
  ["mel", "ears", "Preparing the sound"],
  ["encode", "ears", "Listening"],
  ["project", "ears", "Taking in the words"],
  ["read", "mind", "Reading the picture"],
  ["queue", "mind", "Waiting its turn"],
  ["prefill", "mind", "Reading the last words"],
  ["decode_first", "mind", "First word"],
  ["detokenize", "mind", "Writing it out"],
  ["send", "wires", "On its way back"],
  ["voice", "voice", "First sound"],
  ["playout", "voice", "Sent until heard"],
].map(([name, group, label]) => ({ name, group, label }));

const CAPTIONS = { requested: "from your question" };
const CAPTION = "from your last sound";

const SHOWN_MS = 0.05; // what would read "0.0 ms" is only named

const UNKNOWN = { group: "wires" };

function element(tag, className, text = "") {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}

/** A duration for people: "0.4 ms", "35 ms", "1.24 s". */
export function inMs(ms) {
  if (ms >= 1_000) return `${(ms / 1_000).toFixed(2)} s`;
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** The report's stages in the order of STAGES, then any that this page does not know. */
export function ordered(stagesMs) {
  const known = STAGES.filter(({ name }) => name in stagesMs);
  const names = new Set(known.map(({ name }) => name));
  const others = Object.keys(stagesMs).filter((name) => !names.has(name));
  const all = [...known, ...others.map((name) => ({ ...UNKNOWN, name, label: name }))];
  return all.map((stage) => ({ ...stage, ms: stagesMs[stage.name] }));
}

/** How far the turn could be followed: until it was heard, to its first sound, or to its first word. */
function reached({ total_ms: wordMs, first_sound_ms: soundMs, heard_ms: heardMs }) {
  if (heardMs != null) return { ms: heardMs, to: "until you heard it", spoken: true };
  if (soundMs != null) return { ms: soundMs, to: "to the first sound of the answer", spoken: true };
  return { ms: wordMs, to: "to the first word of the answer", spoken: false };
}

function drawBar(bar, stages) {
  const segments = stages.map(({ name, group, ms, label }) => {
    const segment = element("span", `segment ${group}`);
    segment.dataset.stage = name;
    segment.dataset.ms = ms;
    segment.style.flexGrow = ms; // CSS keeps a hairline for what would be thinner than one
    segment.title = `${label} (${name}): ${inMs(ms)}`;
    return segment;
  });
  bar.replaceChildren(...segments);
  bar.setAttribute("aria-label", stages.map((s) => `${s.label} ${inMs(s.ms)}`).join(", "));
}

function drawLegend(legend, stages) {
  const rows = stages.map(({ name, group, label, ms }) => {
    const row = element("li", "stage");
    row.title = name; // as logs, metrics and the dashboard call it
    row.append(element("span", `swatch ${group}`), element("span", "label", label));
    row.append(element("span", "ms", inMs(ms)));
    return row;
  });
  legend.replaceChildren(...rows);
}

/** How much of the model's work for this turn was over before the person had stopped. */
function drawHeadStart(at, { anchor, work_ms: workMs, hidden_ms: hiddenMs }) {
  const allMs = Object.values(workMs).reduce((sum, ms) => sum + (ms ?? 0), 0);
  at.headStart.hidden = anchor === "requested" || allMs === 0; // typing gives no head start
  if (at.headStart.hidden) return;
  const laterMs = Math.max(0, allMs - hiddenMs);
  at.before.style.flexGrow = hiddenMs;
  at.after.style.flexGrow = laterMs;
  at.hidden.textContent = inMs(hiddenMs);
  at.later.textContent = inMs(laterMs);
}

/**
 * @param {Record<string, HTMLElement>} at where to draw: panel, total, bar, legend, others,
 *   verdict, caption, headStart, before, after, hidden, later
 * @param {object} report the budget of a `gateway.latency.report`; null: not measured
 */
export function drawBudget(at, report) {
  const { ms: reachedMs, to, spoken } = reached(report);
  const stages = ordered(report.stages_ms).filter(({ group }) => spoken || group !== "voice");
  const shown = stages.filter(({ ms }) => ms >= SHOWN_MS);
  const missing = stages.filter(({ ms }) => ms == null);
  const instant = stages.filter(({ ms }) => ms != null && ms < SHOWN_MS);
  at.panel.dataset.state = report.over_budget ? "over" : "kept";
  at.total.dataset.ms = reachedMs ?? "";
  at.total.textContent = reachedMs == null ? "not measured" : inMs(reachedMs);
  at.verdict.textContent = verdict(report, spoken);
  at.caption.textContent = `${CAPTIONS[report.anchor] ?? CAPTION} ${to}`;
  drawHeadStart(at, report);
  drawBar(at.bar, shown);
  drawLegend(at.legend, shown);
  const named = [naming("No time:", instant), naming("Not measured:", missing)];
  at.others.textContent = named.filter(Boolean).join(" ");
}

function naming(what, stages) {
  const names = stages.map(({ label }) => label.toLowerCase()).join(", ");
  return names && `${what} ${names}.`;
}

/** The budget goes to the first word, also of an answer that is spoken. */
function verdict({ over_budget: over, latency_budget_ms: budgetMs, total_ms: wordMs }, spoken) {
  if (budgetMs == null || over == null) return "";
  const kept = `${over ? "Over" : "Within"} the budget of ${inMs(budgetMs)}`;
  return spoken ? `${kept}: first word after ${inMs(wordMs)}` : kept;
}

/** Each chunk's work against the time until the next one (the dashed line), and the sum of all. */
export function drawChunks(at, chunks) {
  const bars = chunks.map(({ workMs, durationMs, dueMs }) => {
    const bar = element("span", workMs > dueMs ? "chunk late" : "chunk");
    bar.style.height = `${Math.min(100, (100 * workMs) / dueMs)}%`; // CSS keeps a hairline
    bar.title = `${inMs(workMs)} of work for ${inMs(durationMs)} of sound`;
    return bar;
  });
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const workMs = sum(chunks.map((chunk) => chunk.workMs));
  const durationMs = sum(chunks.map((chunk) => chunk.durationMs));
  const dueMs = sum(chunks.map((chunk) => chunk.dueMs));
  const late = chunks.filter((chunk) => chunk.workMs > chunk.dueMs).length;
  at.chunks.replaceChildren(...bars);
  at.headroom.textContent = `${Math.round(100 * Math.max(0, 1 - workMs / dueMs))} %`;
  const spent = `${inMs(workMs)} of work for ${inMs(durationMs)} of sound.`;
  at.worst.textContent = `${spent} ${lateSentence(late)}`;
}

function lateSentence(late) {
  if (late === 0) return "Each piece was done before the next one came.";
  return `${late === 1 ? "1 piece" : `${late} pieces`} not done when the next one was there.`;
}
