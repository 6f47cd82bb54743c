// The camera as one JPEG a second.

import { openMedia } from "./media.js";

const PERIOD_MS = 1_000;
const WIDTH = 512; // plenty for the model's eyes, about 30 kB a picture
const QUALITY = 0.7;

export class Camera {
  /**
   * @param {HTMLVideoElement} preview shows what is sent
   * @param {(jpeg: Uint8Array) => void} onPicture
   */
  constructor(preview, onPicture) {
    this.opened = 0; // how often, as `Microphone.opened`
    this.preview = preview;
    this.onPicture = onPicture;
    this.canvas = document.createElement("canvas");
    this.stream = null;
    this.timer = null;
  }

  /** @param {(asking: boolean) => void} onAsking as `openMedia`'s */
  async open(onAsking) {
    this.opened += 1;
    const mine = this.opened;
    const stream = await openMedia("camera", { width: { ideal: 640 } }, onAsking);
    if (mine !== this.opened) {
      stream.getTracks().forEach((track) => track.stop());
      return;
    }
    this.stream = stream;
    this.preview.srcObject = this.stream;
    await this.preview.play();
    this.timer = setInterval(() => this.shoot(), PERIOD_MS);
    this.shoot();
  }

  shoot() {
    const { videoWidth, videoHeight } = this.preview;
    if (!videoWidth) return;
    this.canvas.width = Math.min(WIDTH, videoWidth);
    this.canvas.height = Math.round((videoHeight * this.canvas.width) / videoWidth);
    const context = this.canvas.getContext("2d");
    context.drawImage(this.preview, 0, 0, this.canvas.width, this.canvas.height);
    this.canvas.toBlob(
      async (blob) => this.stream && this.onPicture(new Uint8Array(await blob.arrayBuffer())),
      "image/jpeg",
      QUALITY,
    );
  }

  close() {
    this.opened += 1;
    clearInterval(this.timer);
    this.stream?.getTracks().forEach((track) => track.stop());
    this.preview.srcObject = null;
    this.stream = null;
  }
}
