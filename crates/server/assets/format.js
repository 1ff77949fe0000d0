// Numbers as people read them, and elements as browsers do.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** `digits` is the number of digits up to which none is left out. */
export function count(number, digits = 5) {
  if (number == null) return "–";
  if (number >= 10 ** digits) return compact.format(number);
  return number > 0 && number < 9.95 && number % 1 ? number.toFixed(1) : grouped.format(number);
}

/** A number with its noun: `1 store`, `2 stores`. */
export function counted(number, noun, nouns = `${noun}s`) {
  const text = count(number);
  return `${text} ${text === "1" ? noun : nouns}`;
}

/** At most two decimal places. */
export function short(number) {
  return number == null ? "–" : String(+number.toFixed(2));
}

export function bytes(number) {
  if (number == null) return "–";
  let unit = 0;
  while (number >= 1024 && unit < BYTE_UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  const isWhole = number >= 100 || unit === 0 || number % 1 === 0;
  return `${isWhole ? Math.round(number) : number.toFixed(1)} ${BYTE_UNITS[unit]}`;
}

/** A number on an axis, in the unit of the highest: 50K, 100K. */
export function countTick(tick, ticks) {
  const top = ticks.at(-1);
  const [size, unit] = [[1e9, "B"], [1e6, "M"], [1e3, "K"]].find(([size]) => top >= Math.max(size, 1e5)) ?? [1, ""];
  return tick && unit ? `${+(tick / size).toFixed(2)}${unit}` : count(tick);
}

/** The same for bytes. */
export function bytesTick(tick, ticks) {
  const top = ticks.at(-1);
  const power = Math.max(0, BYTE_UNITS.findLastIndex((_, power) => top >= 1024 ** power));
  return tick ? `${+(tick / 1024 ** power).toFixed(2)} ${BYTE_UNITS[power]}` : bytes(tick);
}

/** The same for shares, with as many digits for each. */
export function percentTick(tick, ticks) {
  return percent(tick, ticks.some((share) => Math.round(share * 1000) % 10) ? 1 : 0);
}

export function micros(number) {
  if (number == null) return "–";
  const [value, unit] = number < 1e3 ? [number, "µs"] : number < 1e6 ? [number / 1e3, "ms"] : [number / 1e6, "s"];
  return `${value >= 10 ? Math.round(value) : +value.toFixed(1)} ${unit}`;
}

export function percent(share, digits = 1) {
  return share == null ? "–" : `${(share * 100).toFixed(digits)} %`;
}

export function duration(secs) {
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [length, name] = units.find(([length]) => secs >= length) ?? units[3];
  const number = Math.floor(secs / length);
  return `${number} ${name}${number === 1 ? "" : "s"}`;
}

export function clock(unixSecs, withSeconds = true) {
  const parts = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Date(unixSecs * 1000).toLocaleTimeString("en", withSeconds ? { ...parts, second: "2-digit" } : parts);
}

/** An HTML element with a class, and text or children. Text is never read as HTML. */
export function element(name, className, ...content) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

/** An SVG element with attributes. */
export function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
