// What this browser remembers for the page. A browser that keeps nothing (private windows, blocked
// storage) is one where nothing was stored.

const PREFIX = "headstart.";

/** @returns {string} what was stored under `name`, or `otherwise` */
export function recall(name, otherwise = "") {
  try {
    return localStorage.getItem(PREFIX + name) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Stores a text; an empty one is forgotten. */
export function remember(name, text) {
  try {
    if (text) localStorage.setItem(PREFIX + name, text);
    else localStorage.removeItem(PREFIX + name);
  } catch {
    // it holds until the page is left
  }
}
