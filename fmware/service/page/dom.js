// Elements and how values look. Text is always text: nothing here, or elsewhere, parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: properties are attributes, `on...` handlers, or `class`; children nodes or text. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same in SVG. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Set a text only where it differs, so that selections and screen readers are left in peace. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const whole = new Intl.NumberFormat("en");

export const count = (value) => whole.format(Math.round(value));

/** So many of something. */
export const several = (value, what, more = "s") => `${count(value)} ${what}${value === 1 ? "" : more}`;

/** A rate with as many digits as it is worth. */
export function rate(value) {
  if (value >= 100) return count(value);
  if (value >= 10) return value.toFixed(0);
  return value === 0 ? "0" : value.toFixed(1);
}

/** Milliseconds, without a unit. */
export function millis(value) {
  if (value >= 1000) return count(value);
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** Seconds with the unit that suits them. */
export function seconds(value) {
  if (value === 0) return "0";
  if (value < 1e-6) return `${(value * 1e9).toFixed(0)} ns`;
  if (value < 1e-3) return `${digits(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1e3)} ms`;
  return value < 120 ? `${digits(value)} s` : duration(value);
}

const digits = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(2));

export function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  for (; value >= 1000 && at < units.length - 1; at += 1) value /= 1000;
  return `${at ? digits(value) : value} ${units[at]}`;
}

export function duration(value) {
  const minutes = Math.floor(value / 60);
  if (minutes < 1) return `${Math.floor(value)} s`;
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}

/** A text that fits, its whole in the title. */
export function cut(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
