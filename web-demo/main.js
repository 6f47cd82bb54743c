// Wires the page: microphone, camera and keyboard to the server, server events to the screen.

import { CallStats } from "./call-stats.js";
import { Camera } from "./camera.js";
import { Connection } from "./connection.js";
import { DeviceCheck } from "./device-check.js";
import { Drawer } from "./drawer.js";
import { EventLog } from "./event-log.js";
import { Frames, drawFrames } from "./frames.js";
import { Keys } from "./keys.js";
import { ASKING, whyNot } from "./media.js";
import { Microphone, level } from "./microphone.js";
import { Graphs, WakeLock } from "./phone.js";
import { Player } from "./player.js";
import {
  audioAppend,
  fromBase64,
  imageAppend,
  modality,
  outputClear,
  playoutStarted,
  responseCancel,
  responseCreate,
  toBase64,
  truncate,
  userText,
} from "./protocol.js";
import { Session, keep } from "./session.js";
import { recall, remember } from "./store.js";
import { Talking } from "./talking.js";
import { View } from "./view.js";

const byId = (id) => document.getElementById(id);

const session = new Session();
const view = new View();
const frames = new Frames();
const log = new EventLog();
const wakeLock = new WakeLock();
let pending = null; // puts what was asked while an answer was running, as soon as that has ended
let frameWanted = false;

/** Draws once per screen frame, however many events came. */
function redraw() {
  if (frameWanted) return;
  frameWanted = true;
  requestAnimationFrame(() => {
    frameWanted = false;
    view.draw(session);
    drawFrames(seen, frames);
  });
}

const seen = { panel: byId("seen"), list: byId("seen-list"), words: byId("seen-words") };
const graphs = new Graphs((silenced) => {
  session.silenced = silenced;
  redraw();
});
let sounding = null; // the response that a call's server has begun to play, until it is heard
const stats = new CallStats((second) => {
  view.drawCall(second);
  // The server knows when it played; from there on it is the jitter buffer and the way.
  if (sounding === null || stats.playoutMs === null) return;
  keep(session.playouts, sounding, { ms: stats.playoutMs, about: true });
  sounding = null;
  redraw();
});

const connection = new Connection(document.baseURI, {
  onEvent(event) {
    session.receive(event);
    if (event.type === "gateway.frame.judged") frames.judged(event);
    if (event.type === "gateway.session.resumed") talking.route();
    if (["session.created", "gateway.session.resumed"].includes(event.type)) followCall();
    playAnswer(event);
    if (pending !== null && !session.response) sendPending();
    redraw();
  },
  onPassed(direction, event) {
    log.add(direction, event);
  },
  onLink(state, message, share = null) {
    session.link = { state, message, share };
    redraw();
  },
  onServer({ model, voice }) {
    session.model = model.name;
    session.llmServer = model.llm_server;
    session.voice = voice?.state ?? null;
  },
  async askKey(sentence) {
    session.link = { state: "locked", message: sentence };
    redraw();
    return view.keyGiven();
  },
  onLost(message, retryInMs, kept) {
    followCall();
    if (!kept) {
      talking.close();
      player.clear();
    }
    const when = kept ? "Coming back to it" : `Trying again in ${Math.round(retryInMs / 1_000)} s`;
    session.lost(`${message} ${when}.`, kept);
    redraw();
  },
});

const player = new Player(
  (playedMs, playing) => {
    document.body.dataset.playedMs = Math.round(playedMs);
    document.body.dataset.sound = playing ? "playing" : "quiet";
  },
  (responseId, delayMs) => {
    if (connection.tellsPlayout) connection.send(playoutStarted(responseId, delayMs));
    keep(session.playouts, responseId, { ms: delayMs, about: player.estimates });
    redraw();
  },
);

player.onHeld = (afterMs) => {
  document.body.dataset.sound = "held";
  document.body.dataset.heldAfterMs = Math.round(afterMs);
};

/** Lets sound out, from a touch of the page. */
async function openPlayer() {
  connection.call?.sound();
  await player.open();
  graphs.watch(player.context);
}

/** Plays what comes; whoever speaks is not spoken over. */
function playAnswer(event) {
  if (event.type === "response.output_audio.delta") {
    player.push(event.item_id, fromBase64(event.delta), event.response_id);
  } else if (event.type === "output_audio_buffer.started") {
    sounding = event.response_id;
  } else if (event.type === "gateway.interruption") {
    // At "real" it stays still: `speech_started` follows, and ends it where it stands.
    if (event.state !== "real") player.hold(event.state === "possible");
  } else if (event.type === "input_audio_buffer.speech_started") {
    clearPlayout();
  }
}

function followCall() {
  stats.follow(connection.call?.peer ?? null);
  view.drawCall(null);
}

/** Silence; the server is told what was heard. A call's server plays itself, and knows. */
function clearPlayout() {
  const cut = player.clear();
  if (cut) connection.send(truncate(cut.id, cut.playedMs));
}

const microphone = new Microphone(
  (pcm) => {
    if (!connection.call && talking.sends) connection.sendMedia(audioAppend(pcm));
    view.drawLevel(level(pcm));
    if (connection.droppedPackets > 0) {
      const lost = connection.droppedPackets;
      session.notice = `The connection is too slow: ${lost} packets were lost.`;
      redraw();
    }
  },
  () => {
    talking.close();
    session.notice = "The microphone was disconnected.";
    redraw();
  },
  (silenced) => {
    session.silenced = silenced;
    redraw();
  },
);

const talking = new Talking({
  session,
  connection,
  microphone,
  stopAnswer,
  onChange() {
    const open = session.microphone === "on";
    if (open) graphs.watch(microphone.context);
    else view.drawLevel(0);
    wakeLock.want(open);
    redraw();
  },
  answer: () => sendWhenQuiet(() => connection.send(responseCreate())),
});

function onTalk() {
  if (connection.aloud) openPlayer();
  if (!session.byHand) talking.toggle();
}

function sendPending() {
  pending();
  pending = null;
  session.waiting = true;
}

/** One answer at a time: what is asked during an answer waits until that one has ended. */
function sendWhenQuiet(send) {
  pending = send;
  stopAnswer();
  if (!session.response) sendPending();
  redraw();
}

function ask(text) {
  session.notice = null;
  if (connection.aloud) openPlayer();
  sendWhenQuiet(() => {
    connection.send(userText(text));
    connection.send(responseCreate());
  });
}

const camera = new Camera(byId("preview"), (jpeg) => {
  const image = toBase64(jpeg);
  connection.sendMedia(imageAppend(image, frames.offer(image)));
});

async function toggleCamera({ target: box }) {
  if (box.checked) {
    try {
      await camera.open((asking) => {
        session.asking = asking ? ASKING.camera : null;
        redraw();
      });
    } catch (error) {
      camera.close();
      box.checked = false;
      session.notice = whyNot(error, "camera");
    }
  } else {
    camera.close();
  }
  camera.preview.hidden = !box.checked;
  redraw();
}

function onSubmit(event) {
  event.preventDefault();
  const text = view.text.value.trim();
  if (!text) return;
  view.text.value = "";
  ask(text);
}

/** Neither written nor spoken any further. */
function stopAnswer() {
  if (session.response) connection.send(responseCancel());
  if (connection.call) connection.send(outputClear());
  else clearPlayout();
}

function toggleVoice({ target: box }) {
  connection.aloud = box.checked;
  connection.send(modality(box.checked));
  if (box.checked) openPlayer();
  else stopAnswer();
}

/** What was open while the devices are being checked, to open it again. */
let paused = false;

const check = new DeviceCheck({
  async onChoice(device) {
    if (device === "speaker") await Promise.all([player.reroute(), connection.call?.reroute()]);
    const box = byId("camera");
    if (device === "camera" && box.checked) {
      camera.close();
      await toggleCamera({ target: box });
    }
  },
  onTalk() {
    if (connection.aloud) openPlayer();
    if (session.microphone === "off" && session.link.state === "open" && !session.byHand) talking.open();
  },
  onClosed() {
    if (paused) talking.open();
    paused = false;
  },
});

function checkDevices() {
  paused = session.microphone === "on" && !session.byHand; // nobody should answer the echo test
  if (session.microphone !== "off") talking.close();
  check.open();
}

function showKeys() {
  byId("keys").showModal();
}

const keys = new Keys({
  m: () => talking.mute(),
  c: () => {
    view.captions.toggle();
    redraw();
  },
  "?": showKeys,
  escape: stopAnswer,
  wantsSpace: (onTalk) => session.byHand || (!onTalk && session.microphone === "on" && session.muted),
  press: () => (session.byHand ? holdTalk() : talking.lift(true)),
  release: () => (session.byHand ? talking.release() : talking.lift(false)),
});
keys.enabled = recall("keys", "on") === "on";

function holdTalk() {
  if (connection.aloud) openPlayer();
  talking.press();
}

/** Held with a finger or a mouse; a screen reader's click has no pointer, and switches. */
function holdByPointer() {
  view.talk.addEventListener("pointerdown", (event) => {
    if (!session.byHand || event.button !== 0 || view.talk.disabled) return;
    view.talk.setPointerCapture(event.pointerId);
    holdTalk();
  });
  for (const over of ["pointerup", "pointercancel", "lostpointercapture"]) {
    view.talk.addEventListener(over, () => session.byHand && talking.release());
  }
  view.talk.addEventListener("click", (event) => {
    if (!session.byHand || event.detail !== 0) return;
    if (session.held) talking.release();
    else holdTalk();
  });
  view.talk.addEventListener("contextmenu", (event) => session.byHand && event.preventDefault());
}

function wireOptions() {
  byId("voice").addEventListener("change", toggleVoice);
  byId("camera").addEventListener("change", toggleCamera);
  byId("hold").addEventListener("change", ({ target }) => talking.setByHand(target.checked));
  byId("captions-on").addEventListener("change", redraw);
  byId("devices").addEventListener("click", checkDevices);
  byId("first-check").addEventListener("click", checkDevices);
  byId("help").addEventListener("click", showKeys);
  const box = byId("keys-on");
  box.checked = keys.enabled;
  box.addEventListener("change", () => {
    keys.enabled = box.checked;
    remember("keys", box.checked ? "" : "off");
  });
}

/** Someone comes back to the page: what the system stopped meanwhile goes on, or is said. */
function onVisible() {
  if (document.visibilityState !== "visible") return;
  if (microphone.track?.readyState === "ended") {
    talking.close();
    session.notice = "The microphone was closed while the page was away. Press Talk to go on.";
  }
  redraw();
}

async function resumeSound() {
  await graphs.resume();
  session.silenced = graphs.silenced || (microphone.track?.muted ?? false);
  redraw();
}

new Drawer(log);
view.talk.addEventListener("click", onTalk);
view.mute.addEventListener("click", () => talking.mute());
view.goOn.addEventListener("click", resumeSound);
view.retry.addEventListener("click", () => connection.connect());
view.welcome.addEventListener("click", ({ target }) => {
  if (target.dataset.ask) ask(target.dataset.ask);
});
byId("ask").addEventListener("submit", onSubmit);
document.addEventListener("visibilitychange", onVisible);
window.addEventListener("online", () => connection.online());
holdByPointer();
wireOptions();
connection.connect();
redraw();
