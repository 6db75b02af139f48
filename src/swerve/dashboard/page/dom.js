// Nodes and texts. Queries and ids come from outside: they are set as text, never as markup.

export const byId = (id) => document.getElementById(id);

/** Create a node with a class, a text and children. */
export function make(tag, name = "", text = "", ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== "") node.textContent = text;
  node.append(...children);
  return node;
}

/** Set a text only if it differs, so that a screen reader does not repeat it. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Show or hide a node. */
export function show(node, yes) {
  if (node.hidden === yes) node.hidden = !yes;
}

/**
 * Make the children of `list` those of `items`, in order. A child is reused by its key, so that it keeps the focus.
 * Returns the children by key.
 */
export function keyed(list, items, keyOf, create, update) {
  const old = list.keyed ?? new Map();
  const now = new Map();
  const focus = list.contains(document.activeElement) ? document.activeElement : null;
  for (const item of items) {
    const key = keyOf(item);
    const node = old.get(key) ?? create(item);
    now.set(key, node);
    update(node, item);
  }
  for (const [key, node] of old) if (!now.has(key)) node.remove();
  let place = list.firstElementChild;
  for (const node of now.values()) {
    if (node === place) place = place.nextElementSibling;
    else list.insertBefore(node, place);
  }
  list.keyed = now;
  if (focus && focus !== document.activeElement && focus.isConnected) focus.focus({ preventScroll: true });
  return now;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value < 100000 ? whole.format(value) : short.format(value));
export const percent = (part) => (Number.isFinite(part) ? `${Math.round(part * 100)} %` : "–");
export const places = (value, digits = 1) => (Number.isFinite(value) ? value.toFixed(digits) : "–");
export const perSecond = (value) => (value < 10 && value > 0 ? places(value) : count(value));
/** A meaning or a signal as words: its name is a slug. */
export const words = (slug) => String(slug).replaceAll("-", " ").replaceAll("_", " ");

/** A query as readers see it: a query without a stored text is watched by its key. */
export const named = (query) => (/^key:[0-9a-f]{32}$/.test(query) ? `query ${query.slice(4, 16)}…` : `“${query}”`);

const DAY = 86400;
/** Times of a simulation are in UTC; those of a real service are in the reader's time zone. */
export function clock(seconds, simulated, near = null) {
  const zone = simulated ? { timeZone: "UTC" } : {};
  const at = new Date(seconds * 1000);
  const time = { hour: "2-digit", minute: "2-digit", ...zone };
  if (!simulated && near !== null && near - seconds < DAY / 2)
    return at.toLocaleTimeString("en-GB", { ...time, second: "2-digit" });
  // American months have three letters each, as on the charts
  const month = at.toLocaleDateString("en-US", { month: "short", ...zone });
  return `${at.toLocaleDateString("en-GB", { day: "numeric", ...zone })} ${month}, ${at.toLocaleTimeString("en-GB", time)}`;
}

/** The time since a moment, in the largest unit that is not zero. */
export function ago(seconds) {
  if (!(seconds >= 0)) return "now";
  const units = [
    ["d", DAY],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  const [name, size] = units.find(([, unit]) => seconds >= unit) ?? ["s", 1];
  return `${Math.floor(seconds / size)} ${name} ago`;
}
