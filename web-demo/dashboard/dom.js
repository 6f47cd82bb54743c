// Elements without markup: all text goes in as `textContent`, all looks through classes and CSSOM.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "style")
      for (const [key, set] of Object.entries(value)) node.style.setProperty(key, set);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child != null && child !== false));
  return node;
}

/** An element with attributes (`class`, `style` as an object, `onclick`, …) and children. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same in SVG. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** Sets a node's text if it differs: what has not changed is not laid out again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute if it differs, for the same reason. */
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/**
 * Makes a container's children those of `items`, keeping the elements that are there: the focus and
 * an open `<details>` survive a redraw.
 * @param {(item: any) => string} keyOf
 * @param {(item: any) => Element} create
 * @param {(node: any, item: any) => void} update called for new and old ones
 */
export function keyed(container, items, keyOf, create, update) {
  const old = container.keyedNodes ?? new Map();
  const wanted = new Map(items.map((item) => [keyOf(item), item]));
  // First: a node that goes later would have all that follow it moved, and laid out again.
  for (const [key, node] of old) if (!wanted.has(key)) node.remove();
  const now = new Map();
  let next = container.firstElementChild;
  for (const [key, item] of wanted) {
    const node = old.get(key) ?? create(item);
    update(node, item);
    now.set(key, node);
    if (node === next) next = next.nextElementSibling;
    else container.insertBefore(node, next);
  }
  container.keyedNodes = now;
}

/** A table whose cells are texts or nodes. `columns`: [heading, class]. */
export function table(caption, columns, rows) {
  const head = columns.map(([heading, kind]) => el("th", { scope: "col", class: kind }, heading));
  const body = rows.map((cells) =>
    el(
      "tr",
      {},
      ...cells.map((cell, i) =>
        el(
          i === 0 ? "th" : "td",
          i === 0 ? { scope: "row" } : { class: columns[i][1] },
          cell ?? "–",
        ),
      ),
    ),
  );
  return el(
    "table",
    {},
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, ...head)),
    el("tbody", {}, ...body),
  );
}

/** A wide thing that scrolls by itself, so that the page never does; reached by keyboard. */
export function scroller(label, ...children) {
  return el(
    "div",
    { class: "scroller", tabindex: "0", role: "group", "aria-label": label },
    ...children,
  );
}
