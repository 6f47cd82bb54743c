// The check before talking: which microphone, speaker and camera, whether they work, and how one
// sounds. It opens devices of its own and closes them with itself.

import { ASKING, choose, chosen, openMedia, picksSpeakers, useSpeaker, whyNot } from "./media.js";
import { Microphone, level } from "./microphone.js";
import { RATE_HZ } from "./protocol.js";

const ECHO_S = 3;
const HEARD = 0.35; // of `level`: speech across a room, not its silence
const SILENT_AFTER_MS = 5_000;
const CHIME_HZ = [523.25, 659.25, 783.99];
const CHIME_NOTE_S = 0.16;
const DEVICES = { microphone: "audioinput", speaker: "audiooutput", camera: "videoinput" };

const byId = (id) => document.getElementById(id);

export class DeviceCheck {
  /**
   * @param {{onChoice: (device: string) => void, onTalk: Function, onClosed: Function}} listener
   *   onChoice when another device is picked; onTalk when the person wants to begin
   */
  constructor(listener) {
    this.listener = listener;
    this.dialog = byId("check");
    this.note = byId("check-note");
    this.meter = byId("meter");
    this.meterWords = byId("meter-words");
    this.echoButton = byId("echo");
    this.echoWords = byId("echo-words");
    this.video = byId("check-video");
    this.cameraButton = byId("try-camera");
    this.selects = Object.fromEntries(Object.keys(DEVICES).map((name) => [name, byId(`pick-${name}`)]));
    this.context = null; // plays the chime and the echo
    this.camera = null; // stream
    this.recording = null; // packets, while the echo test records
    this.microphone = new Microphone((pcm) => this.heard(pcm), () => this.lost());
    for (const [device, select] of Object.entries(this.selects)) {
      select.addEventListener("change", () => this.picked(device, select.value));
    }
    byId("pick-speaker-field").hidden = !picksSpeakers();
    byId("chime").addEventListener("click", () => this.chime());
    byId("check-talk").addEventListener("click", () => this.close(true));
    byId("check-skip").addEventListener("click", () => this.close(false));
    this.echoButton.addEventListener("click", () => this.echo());
    this.cameraButton.addEventListener("click", () => this.toggleCamera());
    this.dialog.addEventListener("close", () => this.closed());
    navigator.mediaDevices?.addEventListener?.("devicechange", () => this.dialog.open && this.list());
  }

  async open() {
    this.talks = false;
    this.note.hidden = true;
    this.echoWords.textContent = "";
    this.dialog.showModal();
    await this.list();
    await this.listen();
  }

  close(talks) {
    this.talks = talks;
    this.dialog.close();
  }

  /** However it was closed. */
  async closed() {
    clearTimeout(this.silence);
    this.microphone.close();
    this.stopCamera();
    this.recording = null;
    this.echoButton.disabled = true;
    await this.context?.close();
    this.context = null;
    this.listener.onClosed();
    if (this.talks) this.listener.onTalk();
  }

  say(sentence, isTrouble) {
    this.note.hidden = !sentence;
    this.note.textContent = sentence;
    this.note.dataset.kind = isTrouble ? "trouble" : "news";
  }

  /** Names come only with permission; before that the pickers number the devices. */
  async list() {
    const all = (await navigator.mediaDevices?.enumerateDevices?.()) ?? [];
    for (const [device, kind] of Object.entries(DEVICES)) {
      const found = all.filter((one) => one.kind === kind && one.deviceId && one.deviceId !== "default");
      const options = found.map(({ deviceId, label }, i) => {
        const name = label || `${device[0].toUpperCase()}${device.slice(1)} ${i + 1}`;
        return new Option(name, deviceId);
      });
      this.selects[device].replaceChildren(new Option("System default", ""), ...options);
      const known = found.some(({ deviceId }) => deviceId === chosen(device));
      this.selects[device].value = known ? chosen(device) : "";
    }
  }

  async picked(device, id) {
    choose(device, id);
    this.listener.onChoice(device);
    if (device === "microphone") await this.listen();
    if (device === "speaker") await useSpeaker(this.context);
    if (device === "camera" && this.camera) {
      this.stopCamera();
      await this.toggleCamera();
    }
  }

  /** Opens the microphone, and moves the bar with it. */
  async listen() {
    clearTimeout(this.silence);
    this.wasHeard = false;
    this.echoButton.disabled = true;
    this.show(0);
    this.meterWords.textContent = "Say something: the bar moves.";
    try {
      await this.microphone.close();
      await this.microphone.open((asking) => this.say(asking ? ASKING.microphone : "", false));
    } catch (error) {
      if (this.dialog.open) {
        this.say(whyNot(error).replace(" Or type your question.", ""), true);
        this.meterWords.textContent = "";
      }
      return;
    }
    if (!this.dialog.open) {
      this.microphone.close();
      return;
    }
    this.say("", false);
    this.echoButton.disabled = false;
    this.silence = setTimeout(() => this.silent(), SILENT_AFTER_MS);
    await this.list(); // by now they have names
  }

  silent() {
    if (!this.wasHeard) this.meterWords.textContent = "Nothing was heard yet. Is it the right one, and is it muted?";
  }

  lost() {
    this.microphone.close();
    this.echoButton.disabled = true;
    this.say("The microphone was disconnected.", true);
    this.list();
  }

  heard(pcm) {
    const loudness = level(pcm);
    this.show(loudness);
    if (loudness > HEARD && !this.wasHeard) {
      this.wasHeard = true;
      this.meterWords.textContent = "You can be heard.";
    }
    this.recording?.push(pcm);
  }

  show(loudness) {
    this.meter.style.setProperty("--level", loudness.toFixed(3));
    this.meter.setAttribute("aria-valuenow", String(Math.round(100 * loudness)));
  }

  /** A graph to sound with, on the chosen speaker. */
  async sounding() {
    this.context ??= new AudioContext();
    await useSpeaker(this.context);
    await this.context.resume();
    return this.context;
  }

  async chime() {
    const context = await this.sounding();
    CHIME_HZ.forEach((hz, i) => {
      const startS = context.currentTime + i * CHIME_NOTE_S;
      const tone = new OscillatorNode(context, { frequency: hz });
      const gain = new GainNode(context, { gain: 0 });
      gain.gain.linearRampToValueAtTime(0, startS);
      gain.gain.linearRampToValueAtTime(0.2, startS + 0.02);
      gain.gain.exponentialRampToValueAtTime(0.001, startS + 3 * CHIME_NOTE_S);
      tone.connect(gain).connect(context.destination);
      tone.start(startS);
      tone.stop(startS + 3 * CHIME_NOTE_S);
    });
    byId("chime-words").textContent = "Three notes were played. Nothing heard? Choose another speaker, or turn it up.";
  }

  /** Records for three seconds, then plays that. */
  async echo() {
    this.echoButton.disabled = true;
    const packets = [];
    this.recording = packets;
    for (let left = ECHO_S; left > 0; left -= 1) {
      this.echoWords.textContent = `Speak now: ${left} s`;
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      if (this.recording !== packets) return; // closed, or begun anew
    }
    this.recording = null;
    const samples = packets.reduce((sum, { length }) => sum + length, 0);
    if (samples === 0) {
      this.echoWords.textContent = "Nothing was recorded: the microphone gives no sound.";
      this.echoButton.disabled = false;
      return;
    }
    const context = await this.sounding();
    const buffer = new AudioBuffer({ length: samples, sampleRate: RATE_HZ, numberOfChannels: 1 });
    const channel = buffer.getChannelData(0);
    let at = 0;
    for (const pcm of packets) {
      for (let i = 0; i < pcm.length; i += 1) channel[at + i] = pcm[i] / 0x8000;
      at += pcm.length;
    }
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(context.destination);
    source.onended = () => {
      this.echoWords.textContent = "That is how you sound.";
      this.echoButton.disabled = false;
    };
    this.echoWords.textContent = "Playing what was recorded…";
    source.start();
  }

  async toggleCamera() {
    if (this.camera) {
      this.stopCamera();
      return;
    }
    try {
      const wanted = { width: { ideal: 640 } };
      const stream = await openMedia("camera", wanted, (asking) => this.say(asking ? ASKING.camera : "", false));
      if (!this.dialog.open) {
        stream.getTracks().forEach((track) => track.stop());
        return;
      }
      this.camera = stream;
      this.video.srcObject = stream;
      this.video.hidden = false;
      this.cameraButton.textContent = "Hide the camera";
      await this.video.play();
      await this.list();
    } catch (error) {
      this.stopCamera();
      if (this.dialog.open) this.say(whyNot(error, "camera"), true);
    }
  }

  stopCamera() {
    this.camera?.getTracks().forEach((track) => track.stop());
    this.camera = null;
    this.video.srcObject = null;
    this.video.hidden = true;
    this.cameraButton.textContent = "Show the camera";
  }
}
