// As much of protobuf's wire format as a trace needs.

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const encoder = new TextEncoder();

/** A message under construction: fields in any order, then `bytes`. */
export class Message {
  constructor() {
    this.parts = [];
    this.length = 0;
  }

  push(bytes) {
    this.parts.push(bytes);
    this.length += bytes.length;
    return this;
  }

  varint(number) {
    const bytes = [];
    let left = BigInt(number);
    while (left >= 128n) {
      bytes.push(Number(left & 127n) | 128);
      left >>= 7n;
    }
    return this.push(Uint8Array.of(...bytes, Number(left)));
  }

  /** @param {number | bigint} value not negative */
  uint(field, value) {
    return this.varint((field << 3) | VARINT).varint(value);
  }

  double(field, value) {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setFloat64(0, value, true);
    return this.varint((field << 3) | FIXED64).push(bytes);
  }

  raw(field, bytes) {
    return this.varint((field << 3) | BYTES)
      .varint(bytes.length)
      .push(bytes);
  }

  string(field, text) {
    return this.raw(field, encoder.encode(text));
  }

  message(field, message) {
    return this.raw(field, message.bytes());
  }

  bytes() {
    const all = new Uint8Array(this.length);
    let at = 0;
    for (const part of this.parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}
