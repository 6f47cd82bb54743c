// WebRTC calls: packets by fate, what had to be filled in, and the worst call.

import { count, inMs, percent } from "../units.js";
import { ChartScreen, peaks, rates, seconds, thinned } from "./chart-screen.js";

export class RtcScreen extends ChartScreen {
  constructor(app) {
    super(
      app,
      "rtc",
      "Calls",
      "WebRTC sound as it came, and what had to be filled in. Jitter, buffer and round trip are the worst call’s.",
    );
    this.fates = ["played", "late", "lost", "duplicate"];
    const hues = ["ears", "wait", "trouble", "wires"];
    this.packets = this.chart({
      title: "Packets a second by fate",
      format: count,
      lines: this.fates.map((label, i) => ({ label, colour: hues[i] })),
    });
    this.missing = this.chart({
      title: "Lost or late, of those due",
      format: percent,
      lines: [{ label: "share", colour: "trouble" }],
      max: 0.02,
    });
    this.filled = this.chart({
      title: "Filled in, ms of each second",
      format: inMs,
      lines: [
        { label: "concealed", colour: "wait" },
        { label: "silence (a stall)", colour: "trouble" },
      ],
    });
    this.delay = this.chart({
      title: "Worst call",
      format: inMs,
      lines: [
        { label: "jitter", colour: "wires" },
        { label: "buffer", colour: "mind" },
        { label: "round trip", colour: "wait" },
      ],
    });
    this.totals = this.facts([
      ["Calls now", (s) => count(s?.calls?.calls)],
      [
        "Packets",
        (s) =>
          s?.rtc
            ? this.fates.map((name) => `${name} ${count(s.rtc.packets?.[name])}`).join(", ")
            : null,
      ],
      ["Concealed", (s) => inMs(s?.rtc?.concealed_ms)],
      ["Silence", (s) => inMs(s?.rtc?.silence_ms)],
      [
        "Sound",
        (s) =>
          s?.audio_ms
            ? Object.entries(s.audio_ms)
                .map(([name, ms]) => `${name} ${inMs(ms)}`)
                .join(", ")
            : null,
      ],
      [
        "Frames",
        (s) =>
          s?.frames
            ? Object.entries(s.frames)
                .map(([name, n]) => `${name.replaceAll("_", " ")} ${count(n)}`)
                .join(", ")
            : null,
      ],
    ]);
  }

  draw(store) {
    const snapshots = thinned(store, this.app.windowMs);
    const at = seconds(snapshots);
    const packets = this.fates.map((name) => rates(snapshots, (s) => s.rtc?.packets?.[name]));
    this.packets.update(at, packets);
    const [played, late, lost] = packets;
    this.missing.update(at, [
      at.map((_, i) => {
        const due = (played[i] ?? 0) + (late[i] ?? 0) + (lost[i] ?? 0);
        return due ? ((late[i] ?? 0) + (lost[i] ?? 0)) / due : null;
      }),
    ]);
    this.filled.update(
      at,
      ["concealed_ms", "silence_ms"].map((name) => rates(snapshots, (s) => s.rtc?.[name])),
    );
    this.delay.update(
      at,
      ["jitter_ms", "buffer_ms", "rtt_ms"].map((name) => peaks(snapshots, (s) => s.calls?.[name])),
    );
    this.totals.draw(store.snapshot);
  }
}
