// The stages of a turn, in the order in which it passes them: their names, and whose they are.

// `row` is the line of the waterfall, and gives the colour.
export const STAGES = [
  ["network", "wires", "on its way here"],
  ["buffer", "wires", "receive buffer"],
  ["resample", "wires", "resampling"],
  ["vad_hangover", "endpointing", "making sure that the person had stopped"],
  ["mel", "ears", "spectrogram"],
  ["encode", "ears", "audio encoder"],
  ["project", "ears", "sound to tokens"],
  ["read", "mind", "reading what is written in a picture"],
  ["queue", "mind", "waiting for a step"],
  ["prefill", "mind", "reading the last tokens"],
  ["decode_first", "mind", "first token"],
  ["detokenize", "mind", "token to text"],
  ["send", "wires", "on its way back"],
  ["voice", "voice", "first sound of the answer"],
  ["playout", "playout", "sent until heard"],
].map(([name, row, label]) => ({ name, row, label }));

export const ROWS = [
  ["wires", "Network"],
  ["endpointing", "Endpointing"],
  ["ears", "Recognition"],
  ["mind", "Model"],
  ["voice", "Voice"],
  ["playout", "Playout"],
];

// Measures of a whole turn, beside its stages.
export const TOTALS = [
  ["total", "first token", "from the last sound to the first token sent"],
  ["first_sound", "first sound", "from the last sound to the first sound sent"],
  ["heard", "heard", "from the last sound to the first sound heard"],
].map(([name, title, label]) => ({ name, title, label, row: "total" }));

const KNOWN = new Map([...TOTALS, ...STAGES].map((stage) => [stage.name, stage]));
const ORDER = new Map([...KNOWN.keys()].map((name, i) => [name, i]));

/** What is known of a stage; one that this page has never heard of is shown under its own name. */
export function stageOf(name) {
  return KNOWN.get(name) ?? { name, row: "mind", label: name };
}

export function titleOf(name) {
  return stageOf(name).title ?? name;
}

/** Names in the order in which a turn passes them; unknown ones come last. */
export function inOrder(names) {
  return [...names].sort((a, b) => (ORDER.get(a) ?? 1e3) - (ORDER.get(b) ?? 1e3));
}

const DEFAULT_OWNERS = {
  network: "network",
  buffer: "network",
  vad_hangover: "setting",
  voice: "voice",
  playout: "client",
};

/** Who a wait is charged to, as words: "setting silence_duration_ms = 500", "engine", … */
export function ownerOf(waits, stage) {
  const wait = waits?.[stage];
  const owner = typeof wait?.owner === "string" ? wait.owner : (DEFAULT_OWNERS[stage] ?? "engine");
  if (owner !== "setting" || !wait?.setting) return owner;
  return wait.value == null ? `setting ${wait.setting}` : `setting ${wait.setting} = ${wait.value}`;
}
