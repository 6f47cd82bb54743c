// How a person talks: with the microphone open and the server listening for the end, or by holding
// a button. Muted is open and silent, so that the server still hears the pause that ends a turn.

import { ASKING, whyNot } from "./media.js";
import { GivenUp } from "./microphone.js";
import { setAudioSession } from "./phone.js";
import { RATE_HZ, audioAppend, audioClear, audioCommit, turnsUpdate } from "./protocol.js";

const CLOSING_SILENCE_MS = 1_000; // longer than the server's pause, so that it ends the last turn
const TAIL_MS = 200; // heard after the release: the last sound is still under way
const SHORTEST_MS = 250; // a press that is shorter was a mistake

export class Talking {
  /**
   * @param {{session: object, connection: object, microphone: object, onChange: Function,
   *   stopAnswer: Function, answer: Function}} parts
   *   onChange() when something is to be drawn; stopAnswer() ends what is being said; answer() asks
   *   for an answer as soon as none is running
   */
  constructor(parts) {
    Object.assign(this, parts);
    this.pressedAtMs = null; // while the button is down
    this.lifted = false; // whether the mute is off for as long as Space is down
  }

  /** Whether what the microphone hears goes to the server. */
  get sends() {
    return !this.session.byHand || this.session.held;
  }

  /** @returns {Promise<boolean>} whether the microphone is open */
  async open() {
    const { session } = this;
    session.microphone = "opening";
    session.notice = null;
    this.onChange();
    try {
      setAudioSession(true);
      await this.microphone.open((asking) => {
        session.asking = asking ? ASKING.microphone : null;
        this.onChange();
      });
      session.microphone = "on";
      session.muted = false;
      this.route();
    } catch (error) {
      if (error instanceof GivenUp) return false; // `close` has tidied up
      this.close();
      session.notice = whyNot(error);
    }
    this.onChange();
    return session.microphone === "on";
  }

  close() {
    const { session, connection, microphone } = this;
    connection.speak(null);
    microphone.close();
    setAudioSession(false);
    Object.assign(session, { microphone: "off", asking: null, muted: false, held: false });
    this.onChange();
  }

  /** Has the track carry the sound, where there is one, or none of it. */
  route() {
    const { microphone, session, connection } = this;
    const { track } = microphone;
    if (!track) return;
    track.enabled = session.byHand ? session.held : !session.muted || this.lifted;
    connection.speak(this.sends ? track : null);
  }

  /** The button, in a conversation without holding. */
  toggle() {
    const { session, connection } = this;
    if (session.microphone === "off") return this.open();
    const spoke = session.speaking;
    this.close();
    const silence = new Int16Array((RATE_HZ * CLOSING_SILENCE_MS) / 1_000);
    // A call's track without a microphone is silent by itself.
    if (spoke && !connection.call) connection.send(audioAppend(silence));
    return null;
  }

  mute() {
    const { session } = this;
    if (session.byHand || session.microphone !== "on") return;
    session.muted = !session.muted;
    this.lifted = false;
    this.route();
    this.onChange();
  }

  /** @param {boolean} lifted while Space is down, a muted microphone hears */
  lift(lifted) {
    this.lifted = lifted;
    this.route();
  }

  /** Hold to talk, or not; the microphone closes, since its next use is another. */
  setByHand(byHand) {
    const { session, connection } = this;
    this.pressedAtMs = null;
    this.close();
    session.byHand = byHand;
    session.speaking = null;
    connection.byHand = byHand;
    connection.send(turnsUpdate(byHand));
    this.onChange();
  }

  async press() {
    const { session, connection } = this;
    if (this.pressedAtMs !== null || session.link.state !== "open" || session.held) return;
    this.pressedAtMs = performance.now();
    this.stopAnswer();
    if (session.microphone !== "on" && !(await this.open())) {
      this.pressedAtMs = null;
      return;
    }
    if (this.pressedAtMs === null) return; // released while it was being opened
    this.pressedAtMs = performance.now();
    session.notice = null;
    session.held = true;
    connection.send(audioClear());
    this.route();
    this.onChange();
  }

  async release() {
    const { session, connection } = this;
    if (this.pressedAtMs === null) return;
    const heldMs = performance.now() - this.pressedAtMs;
    this.pressedAtMs = null;
    if (!session.held) return;
    const isTurn = heldMs >= SHORTEST_MS;
    if (isTurn) await new Promise((resolve) => setTimeout(resolve, TAIL_MS));
    if (!session.held) return; // the microphone was closed meanwhile
    session.held = false;
    this.route();
    if (isTurn) {
      connection.send(audioCommit());
      this.answer();
    } else {
      connection.send(audioClear());
      session.notice = "Hold the button for as long as you speak.";
    }
    this.onChange();
  }
}
