// Wires the page: microphone, camera and keyboard to the server, server events to the screen.

import { Camera } from "./camera.js";
import { Connection } from "./connection.js";
import { Microphone, level, whyNot } from "./microphone.js";
import { Player } from "./player.js";
import {
  RATE_HZ,
  audioAppend,
  fromBase64,
  imageAppend,
  modality,
  outputClear,
  responseCancel,
  responseCreate,
  truncate,
  userText,
} from "./protocol.js";
import { Session } from "./session.js";
import { View } from "./view.js";

const CLOSING_SILENCE_MS = 1_000; // longer than the server's pause, so that it ends the last turn

const session = new Session();
const view = new View();
let pendingText = null; // typed while an answer was running: put as soon as that one has ended
let frameWanted = false;

/** Draws once per screen frame, however many events came. */
function redraw() {
  if (frameWanted) return;
  frameWanted = true;
  requestAnimationFrame(() => {
    frameWanted = false;
    view.draw(session);
  });
}

const connection = new Connection(document.baseURI, {
  onEvent(event) {
    session.receive(event);
    if (event.type === "gateway.session.resumed") connection.speak(microphone.track);
    hearAnswer(event);
    if (pendingText !== null && !session.response) putTyped();
    redraw();
  },
  onLink(state, message) {
    session.link = { state, message };
    redraw();
  },
  onServer({ model, voice }) {
    session.model = model.name;
    session.voice = voice?.state ?? null;
  },
  async askKey(sentence) {
    session.link = { state: "locked", message: sentence };
    redraw();
    return view.keyGiven();
  },
  onLost(message, retryInMs, kept) {
    if (!kept) {
      closeMicrophone();
      player.clear();
    }
    const when = kept ? "Coming back to it" : `Trying again in ${Math.round(retryInMs / 1_000)} s`;
    session.lost(`${message} ${when}.`, kept);
    redraw();
  },
});

const player = new Player((playedMs, playing) => {
  document.body.dataset.playedMs = Math.round(playedMs);
  document.body.dataset.sound = playing ? "playing" : "quiet";
});

/** Plays what comes; whoever speaks is not spoken over. */
function hearAnswer(event) {
  if (event.type === "response.output_audio.delta") {
    player.push(event.item_id, fromBase64(event.delta));
  } else if (event.type === "input_audio_buffer.speech_started") {
    hush();
  }
}

/** Silence; the server is told what was heard. A call's server plays itself, and knows. */
function hush() {
  const cut = player.clear();
  if (cut) connection.send(truncate(cut.id, cut.playedMs));
}

const microphone = new Microphone(
  (pcm) => {
    if (!connection.call) connection.sendMedia(audioAppend(pcm));
    view.drawLevel(level(pcm));
    if (connection.droppedPackets > 0) {
      const lost = connection.droppedPackets;
      session.notice = `The connection is too slow: ${lost} packets were lost.`;
      redraw();
    }
  },
  () => {
    closeMicrophone();
    session.notice = "The microphone was disconnected.";
    redraw();
  },
);

async function openMicrophone() {
  session.microphone = "opening";
  session.notice = null;
  redraw();
  try {
    await microphone.open();
    connection.speak(microphone.track);
    session.microphone = "on";
  } catch (error) {
    closeMicrophone();
    session.notice = whyNot(error);
  }
  redraw();
}

function closeMicrophone() {
  connection.speak(null);
  microphone.close();
  session.microphone = "off";
  view.drawLevel(0);
}

function toggleTalk() {
  if (connection.aloud) player.open();
  if (session.microphone !== "on") return openMicrophone();
  closeMicrophone();
  const silence = new Int16Array((RATE_HZ * CLOSING_SILENCE_MS) / 1_000);
  // A call's track without a microphone is silent by itself.
  if (session.speaking && !connection.call) connection.send(audioAppend(silence));
  return redraw();
}

function putTyped() {
  connection.send(userText(pendingText));
  connection.send(responseCreate());
  pendingText = null;
  session.waiting = true;
}

/** One answer at a time: a question typed into a running answer ends that answer first. */
function ask(text) {
  pendingText = text;
  session.notice = null;
  if (connection.aloud) player.open();
  stopAnswer();
  if (!session.response) putTyped();
  redraw();
}

const camera = new Camera(document.getElementById("preview"), (jpeg) =>
  connection.sendMedia(imageAppend(jpeg)),
);

async function toggleCamera({ target: box }) {
  if (box.checked) {
    try {
      await camera.open();
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
  else hush();
}

function onKey({ key }) {
  if (key === "Escape") stopAnswer();
}

function toggleVoice({ target: box }) {
  connection.aloud = box.checked;
  connection.send(modality(box.checked));
  if (box.checked) player.open();
  else stopAnswer();
}

view.talk.addEventListener("click", toggleTalk);
view.retry.addEventListener("click", () => connection.connect());
view.welcome.addEventListener("click", ({ target }) => {
  if (target.dataset.ask) ask(target.dataset.ask);
});
document.getElementById("ask").addEventListener("submit", onSubmit);
document.getElementById("voice").addEventListener("change", toggleVoice);
document.getElementById("camera").addEventListener("change", toggleCamera);
document.addEventListener("keydown", onKey);
connection.connect();
redraw();
