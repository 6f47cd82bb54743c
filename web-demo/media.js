// Opening a microphone or a camera, and saying in one sentence why that failed.

import { recall, remember } from "./store.js";

const ASKING_AFTER_MS = 5_000; // a browser that has not answered by then waits for the person

const REASONS = {
  NotAllowedError: "The microphone was not allowed. Allow it in the address bar, then try again.",
  NotFoundError: "No microphone was found. Connect one, then try again.",
  NotReadableError: "The microphone is in use by another program. Close that, then try again.",
  OverconstrainedError: "No microphone here can do what was asked. Choose another under Devices.",
  AbortError: "The microphone stopped while it was being opened. Unplug it, plug it in, try again.",
  SecurityError: "This browser's settings forbid pages the microphone. Allow it there, then try again.",
  InsecureContext:
    "Browsers give the microphone only to https pages and to localhost, and this page is neither.",
  PartMissing:
    "The server did not answer, and the page needs it once to open the microphone. Try again when it is back.",
  NoMediaDevices: "This browser gives pages no microphone. A newer one does.",
};
const BY_SYSTEM = "The system does not let this browser use the microphone. Allow it in the system's settings.";

export const ASKING = {
  microphone: "Your browser is asking whether this page may use the microphone. Look for its question.",
  camera: "Your browser is asking whether this page may use the camera. Look for its question.",
};

/** There is nothing to open a device with. `name` is a key of REASONS. */
export class NoDevices extends Error {
  constructor() {
    super("no navigator.mediaDevices");
    this.name = globalThis.isSecureContext ? "NoMediaDevices" : "InsecureContext";
  }
}

/** Raises `NoDevices` where there is nothing to open a device with. */
export function needDevices() {
  if (!navigator.mediaDevices?.getUserMedia) throw new NoDevices();
}

/** Says in one sentence why the microphone or camera did not open. */
export function whyNot(error, device = "microphone") {
  const bySystem = error.name === "NotAllowedError" && /system/i.test(error.message);
  const known = bySystem ? BY_SYSTEM : REASONS[error.name];
  const reason = known ?? `The microphone did not open: ${error.message || error.name}.`;
  const instead = device === "microphone" ? " Or type your question." : "";
  return reason.replaceAll("microphone", device) + instead;
}

/** The id of the device that was chosen for `device`, or "" for the system's own choice. */
export function chosen(device) {
  return recall(`device.${device}`);
}

export function choose(device, id) {
  remember(`device.${device}`, id);
}

/**
 * Opens a device: the one that was chosen, or any if that is gone.
 * @param {"microphone" | "camera"} device
 * @param {MediaTrackConstraints} wanted
 * @param {(asking: boolean) => void} onAsking told when the browser seems to wait for the person,
 *   and when it does no more
 * @returns {Promise<MediaStream>} rejects as getUserMedia does, and with `NoDevices`
 */
export async function openMedia(device, wanted, onAsking = () => {}) {
  needDevices();
  const kind = device === "camera" ? "video" : "audio";
  const open = (more) => navigator.mediaDevices.getUserMedia({ [kind]: { ...wanted, ...more } });
  let asking = false;
  const timer = setTimeout(() => onAsking((asking = true)), ASKING_AFTER_MS);
  const id = chosen(device);
  try {
    if (!id) return await open({});
    return await open({ deviceId: { exact: id } }).catch((error) => {
      if (!["OverconstrainedError", "NotFoundError"].includes(error.name)) throw error;
      choose(device, ""); // it was unplugged, or the browser has given it another id
      return open({});
    });
  } finally {
    clearTimeout(timer);
    if (asking) onAsking(false);
  }
}

/** Whether sound can be sent to a speaker of choice. */
export function picksSpeakers() {
  return "setSinkId" in HTMLMediaElement.prototype || "setSinkId" in AudioContext.prototype;
}

/**
 * Has an AudioContext or a media element play on the chosen speaker, where that can be chosen. One
 * that is gone is forgotten.
 */
export async function useSpeaker(sounding) {
  if (!sounding?.setSinkId) return;
  try {
    await sounding.setSinkId(chosen("speaker"));
  } catch {
    choose("speaker", "");
  }
}
