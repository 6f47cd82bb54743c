// The page's colours as values, for canvases; read anew when the scheme changes.

const scheme = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();
let known = new Map();

scheme.addEventListener("change", () => {
  known = new Map();
  for (const listener of listeners) listener();
});

/** @param {string} name of a custom property of the root element, without the dashes */
export function colour(name) {
  if (!known.has(name)) {
    known.set(
      name,
      getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
    );
  }
  return known.get(name);
}

export function onScheme(listener) {
  listeners.add(listener);
}
