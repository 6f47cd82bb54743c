// A recording, read as a stream: gzipped or not, of any size, one message at a time.

import { VERSION } from "../data/store.js";

const LINE_MAX = 16 * 1024 * 1024; // characters; a `turn` has some thousands
const BAD_LINES_MAX = 1_000;

export class RecordingError extends Error {}

async function isGzip(file) {
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  return head[0] === 0x1f && head[1] === 0x8b;
}

function checkHello(line, name) {
  let hello;
  try {
    hello = JSON.parse(line);
  } catch {
    throw new RecordingError(`${name} is not a recording: its first line is not JSON.`);
  }
  if (hello?.type !== "hello") {
    throw new RecordingError(
      `${name} is not a recording: it does not begin with a “hello” message.`,
    );
  }
  if (hello.version !== VERSION) {
    throw new RecordingError(
      `${name} has format version ${JSON.stringify(hello.version ?? null)}; this page reads version ${VERSION}. ` +
        "Open it with the headstart that recorded it.",
    );
  }
  return hello;
}

export class Reader {
  /** @param {File} file */
  constructor(file) {
    this.file = file;
    this.bytesRead = 0;
    this.lines = 0;
    this.badLines = 0;
    this.isCutOff = false; // it ends in mid line or mid stream
  }

  /** Bytes as text; a stream that breaks off ends here, with what came before. */
  async *text() {
    const count = new TransformStream({
      transform: (chunk, controller) => {
        this.bytesRead += chunk.byteLength;
        controller.enqueue(chunk);
      },
    });
    let stream = this.file.stream().pipeThrough(count);
    const gzip = await isGzip(this.file);
    if (gzip) {
      if (typeof DecompressionStream !== "function") {
        throw new RecordingError(
          "This browser cannot unpack gzip. Unpack the file first (gunzip), and open it then.",
        );
      }
      stream = stream.pipeThrough(new DecompressionStream("gzip"));
    }
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        yield value;
      }
    } catch (error) {
      if (!gzip)
        throw new RecordingError(`${this.file.name} could not be read: ${error.message}`, {
          cause: error,
        });
      this.isCutOff = true; // what a server that was killed leaves behind
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  /** All messages, in order. Throws RecordingError, with a sentence for people. */
  async *messages() {
    let rest = "";
    for await (const text of this.text()) {
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      if (rest.length > LINE_MAX) {
        throw new RecordingError(
          `${this.file.name} is not a recording: it has a line of more than ${LINE_MAX / 2 ** 20} MiB.`,
        );
      }
      for (const line of lines) yield* this.message(line);
    }
    if (rest) {
      const before = this.badLines;
      yield* this.message(rest);
      if (this.badLines > before) {
        this.badLines = before;
        this.isCutOff = true;
      }
    }
    if (this.lines === 0) {
      throw new RecordingError(
        this.isCutOff
          ? `${this.file.name} is not a recording, or nothing of it is left: it could not be unpacked.`
          : `${this.file.name} is empty.`,
      );
    }
  }

  *message(line) {
    if (line.trim() === "") return;
    this.lines += 1;
    if (this.lines === 1) {
      yield checkHello(line, this.file.name);
      return;
    }
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      this.badLines += 1;
      if (this.badLines > BAD_LINES_MAX) {
        throw new RecordingError(
          `${this.file.name} is damaged: more than ${BAD_LINES_MAX} of its lines are not JSON.`,
        );
      }
      return;
    }
    yield message;
  }

  /** What was wrong with the file, as sentences; empty for nothing. */
  get remarks() {
    const said = [];
    if (this.isCutOff) said.push("The file breaks off at its end; what came before is shown.");
    if (this.badLines)
      said.push(
        `${this.badLines === 1 ? "One line was" : `${this.badLines} lines were`} no JSON and left out.`,
      );
    return said.join(" ");
  }
}
