// Numbers as people read them.

const whole = new Intl.NumberFormat("en"); // made once: `toLocaleString` looks it up each time

/** "0.4 ms", "35 ms", "1.24 s"; "–" for what nobody could measure. */
export function inMs(ms) {
  if (ms == null || !Number.isFinite(ms)) return "–";
  const size = Math.abs(ms);
  if (size >= 99_950) return `${Math.round(ms / 1_000)} s`;
  if (size >= 999.5) return `${(ms / 1_000).toFixed(2)} s`;
  return `${size < 9.95 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** A share as "4.2 %". */
export function percent(share) {
  if (share == null || !Number.isFinite(share)) return "–";
  const value = 100 * share;
  const digits = Math.abs(value) < 9.95 && value !== 0 ? value.toFixed(1) : Math.round(value);
  return `${String(digits).replace("-", "−")} %`;
}

/** "1,234", "12.3 k", "4.5 M". */
export function count(number) {
  if (number == null || !Number.isFinite(number)) return "–";
  if (Math.abs(number) >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  if (Math.abs(number) >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  return Number.isInteger(number) ? whole.format(number) : number.toFixed(1);
}

export function bytes(number) {
  if (number == null || !Number.isFinite(number)) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let size = number;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(1)} ${units[unit]}`;
}

/** "1 turn", "37 turns", "2,000 turns". */
export function many(number, one, several = `${one}s`) {
  return `${whole.format(number)} ${number === 1 ? one : several}`;
}

/** Seconds as "12 s", "3 min 4 s", "2 h 5 min". */
export function age(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

/** The same for a table of many: from a minute on without the seconds, which nobody compares. */
export function roughAge(seconds) {
  if (seconds == null || !Number.isFinite(seconds) || seconds < 60 || seconds >= 3_600)
    return age(seconds);
  return `${Math.floor(seconds / 60)} min`;
}

/** The time of day of an instant in ms since 1970, in the reader's own zone. */
export function clock(ms) {
  if (ms == null || !Number.isFinite(ms)) return "–";
  const two = (number) => String(number).padStart(2, "0");
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** An id short enough for a table: "resp_5f2a…91c3". */
export function shortId(id) {
  return id.length > 16 ? `${id.slice(0, 9)}…${id.slice(-4)}` : id;
}
