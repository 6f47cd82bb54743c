// The feed so far as a file: its very lines, gzipped as they come, one piece a minute, of which the
// newest sixty are kept. Saving unpacks them one after the other into one gzip stream.

const PIECE_MS = 60_000;
const PIECES_KEPT = 60;
const LINES_MS = 1_000; // lines go to the compressor in batches of so long
const BYTES_KEPT = 256 * 1024 * 1024; // of gzip: beyond it the oldest pieces go earlier

export const canRecord = typeof CompressionStream === "function";

class Piece {
  constructor(startedMs) {
    this.startedMs = startedMs;
    this.bytes = 0;
    this.messages = 0;
    this.lines = [];
    this.writtenMs = startedMs;
    const stream = new CompressionStream("gzip");
    this.writer = stream.writable.getWriter();
    this.encoder = new TextEncoder();
    this.blob = this.collect(stream.readable);
  }

  async collect(readable) {
    const parts = [];
    const reader = readable.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return new Blob(parts);
      parts.push(value);
      this.bytes += value.byteLength;
    }
  }

  write(line, nowMs) {
    this.messages += 1;
    this.lines.push(line, "\n");
    if (nowMs - this.writtenMs >= LINES_MS) this.flush(nowMs);
  }

  flush(nowMs) {
    this.writtenMs = nowMs;
    this.writer.write(this.encoder.encode(this.lines.join(""))).catch(() => {});
    this.lines = [];
  }

  close() {
    this.flush(this.writtenMs);
    this.writer.close().catch(() => {});
    return this.blob;
  }
}

export class Recorder {
  constructor() {
    this.hello = "";
    this.pieces = [];
    this.open = null;
  }

  /** @param {string} line as it came; @param {number} nowMs of any clock that does not jump */
  add(line, isHello, nowMs) {
    if (!canRecord) return;
    if (isHello && !this.hello) this.hello = line;
    if (this.open && nowMs - this.open.startedMs > PIECE_MS) this.turnPage();
    if (!this.open) this.open = new Piece(nowMs);
    this.open.write(line, nowMs);
  }

  turnPage() {
    this.open.close();
    this.pieces.push(this.open);
    this.open = null;
    let bytes = this.pieces.reduce((sum, piece) => sum + piece.bytes, 0);
    while (this.pieces.length > PIECES_KEPT || bytes > BYTES_KEPT)
      bytes -= this.pieces.shift().bytes;
  }

  get messages() {
    return [...this.pieces, this.open].reduce((sum, piece) => sum + (piece?.messages ?? 0), 0);
  }

  /** @returns {Promise<Blob>} gzipped JSONL: the greeting, then all lines kept */
  async save() {
    if (this.open) this.turnPage();
    const out = new CompressionStream("gzip");
    const saved = new Response(out.readable).blob();
    const writer = out.writable.getWriter();
    let first = true;
    for (const piece of this.pieces) {
      const lines = (await piece.blob).stream().pipeThrough(new DecompressionStream("gzip"));
      const reader = lines.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        // The oldest pieces may be gone, and the greeting with them.
        if (first && !startsWith(value, this.hello))
          await writer.write(new TextEncoder().encode(`${this.hello}\n`));
        first = false;
        await writer.write(value);
      }
    }
    await writer.close();
    return saved;
  }
}

function startsWith(bytes, line) {
  const head = new TextDecoder().decode(bytes.subarray(0, 40));
  return line.startsWith(head.slice(0, Math.min(40, line.length))) || head.startsWith(line);
}

/** Hands a blob to the person as a file. */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** "headstart-2026-11-29T13-00-05": part of a file's name. */
export function stamp(ms = Date.now()) {
  return `headstart-${new Date(ms).toISOString().slice(0, 19).replaceAll(":", "-")}`;
}
