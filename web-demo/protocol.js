// The messages this page sends, and how sound becomes bytes: the one place that knows the wire.
//
// The protocol is OpenAI's Realtime API (GA) over WebSocket, plus events named `gateway.*` and
// `input_image_buffer.append`, which the server offers to sessions that ask for them.

export const RATE_HZ = 24_000; // the protocol's only PCM rate
export const PACKET_SAMPLES = 960; // 40 ms: small beside a turn, large beside a message's overhead

// String.fromCharCode takes its bytes as arguments, and browsers bound the number of those.
const BASE64_SLICE_BYTES = 0x8000;

/** Float samples in [-1, 1] as signed 16 bit, clipped. NaN becomes silence. */
export function toPcm16(floats) {
  const pcm = new Int16Array(floats.length);
  for (let i = 0; i < floats.length; i += 1) {
    const x = Math.max(-1, Math.min(1, floats[i]));
    pcm[i] = Math.round(x < 0 ? x * 0x8000 : x * 0x7fff);
  }
  return pcm;
}

/** The same samples as bytes, low byte first whatever the machine's order. */
export function toBytes(pcm) {
  const bytes = new Uint8Array(pcm.length * 2);
  const view = new DataView(bytes.buffer);
  pcm.forEach((sample, i) => view.setInt16(2 * i, sample, true));
  return bytes;
}

export function toBase64(bytes) {
  let binary = "";
  for (let at = 0; at < bytes.length; at += BASE64_SLICE_BYTES) {
    binary += String.fromCharCode(...bytes.subarray(at, at + BASE64_SLICE_BYTES));
  }
  return btoa(binary);
}

/** How a conversation whose connection broke is asked for again: with the token it was given. */
export const RESUME_HEADER = "headstart-resume";
const RESUME_SUBPROTOCOL = "headstart-resume.";

const KEY_SUBPROTOCOL = "openai-insecure-api-key.";

/** The subprotocols of a WebSocket; token and key are some, for addresses are logged on the way. */
export function subprotocols(token, key = "") {
  const secrets = [];
  if (key) secrets.push(KEY_SUBPROTOCOL + key);
  if (token) secrets.push(RESUME_SUBPROTOCOL + token);
  return secrets.length ? ["realtime", ...secrets] : [];
}

/** The headers of a request with an API key, or without. */
export function withKey(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Where the Realtime endpoint is, seen from a page at `pageUrl`. */
export function realtimeUrl(pageUrl, model, lastEventId = null) {
  const url = new URL("v1/realtime", pageUrl);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.search = "";
  url.searchParams.set("model", model);
  if (lastEventId) url.searchParams.set("last_event_id", lastEventId);
  return url.href;
}

/** Base64 of little-endian PCM16 as samples. */
export function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Int16Array.from({ length: bytes.length >> 1 }, (_, i) => view.getInt16(2 * i, true));
}

/** Who ends a turn: the server by listening, or, while `byHand`, the person with the button. */
function turnDetection(byHand) {
  return byHand ? null : { type: "server_vad", create_response: true, interrupt_response: true };
}

/**
 * @param {boolean} aloud whether answers are spoken, where the server has a voice
 * @param {boolean} byHand whether the person holds a button to talk
 */
export function sessionUpdate(aloud, byHand = false) {
  return {
    type: "session.update",
    session: {
      type: "realtime",
      output_modalities: [aloud ? "audio" : "text"],
      audio: {
        input: {
          format: { type: "audio/pcm", rate: RATE_HZ },
          transcription: { model: "whisper-tiny.en", language: "en" },
          turn_detection: turnDetection(byHand),
        },
      },
      gateway: {
        events: ["latency", "chunks", "hearing", "engine", "voice", "interruption", "turn", "frames"],
        endpointing: "eager", // soon behind a whole sentence, and taken back if the person goes on
        resume: true,
      },
    },
  };
}

/** The same of a session that goes on. */
export function turnsUpdate(byHand) {
  const session = { type: "realtime", audio: { input: { turn_detection: turnDetection(byHand) } } };
  return { type: "session.update", session };
}

export function audioAppend(pcm) {
  return { type: "input_audio_buffer.append", audio: toBase64(toBytes(pcm)) };
}

/** What was said since the buffer was cleared is a turn, or is forgotten. */
export function audioCommit() {
  return { type: "input_audio_buffer.commit" };
}

export function audioClear() {
  return { type: "input_audio_buffer.clear" };
}

/** One camera picture as base64 of a JPEG; the server looks at it from the next word on. */
export function imageAppend(image, eventId) {
  return { type: "input_image_buffer.append", event_id: eventId, image };
}

const PLAYOUT_ID = "playout_"; // begins the ids of these events, so that a refusal is known

/** A response began to sound here, so long after the first of its sound had come. */
export function playoutStarted(responseId, delayMs) {
  const event_id = `${PLAYOUT_ID}${responseId}`;
  return { type: "gateway.playout.started", event_id, response_id: responseId, delay_ms: delayMs };
}

/** Whether an error event is about `playoutStarted`: a server that does not know it says so. */
export function isPlayoutRefusal({ type, error }) {
  return type === "error" && (error?.event_id?.startsWith(PLAYOUT_ID) ?? false);
}

export function userText(text) {
  return {
    type: "conversation.item.create",
    item: { type: "message", role: "user", content: [{ type: "input_text", text }] },
  };
}

/** Of a spoken answer only so much was heard. */
export function truncate(itemId, playedMs) {
  return {
    type: "conversation.item.truncate",
    item_id: itemId,
    content_index: 0,
    audio_end_ms: playedMs,
  };
}

/** Where the server plays: drop what it still holds. */
export function outputClear() {
  return { type: "output_audio_buffer.clear" };
}

export function modality(aloud) {
  const session = { type: "realtime", output_modalities: [aloud ? "audio" : "text"] };
  return { type: "session.update", session };
}

export function responseCreate() {
  return { type: "response.create" };
}

export function responseCancel() {
  return { type: "response.cancel" };
}
