// Scales of charts: where an axis begins and ends, and its ticks.

/** Round steps from 0 to at least `most`. Three or four ticks, usually. `unit`: "whole", "fraction" or
 * "bytes". */
export function linear(most, unit) {
  const step = unit === "bytes" ? binaryStep(most / 3) : decimalStep(most / 3, unit === "whole");
  return Array.from({ length: Math.max(2, Math.ceil(most / step - 1e-9) + 1) }, (_, index) => index * step);
}

function decimalStep(least, isWhole) {
  const power = 10 ** Math.floor(Math.log10(least));
  const steps = [1, 2, 2.5, 5, 10].map((factor) => factor * power);
  const step = steps.find((step) => step >= least * (1 - 1e-9) && (!isWhole || step % 1 === 0)) ?? 10 * power;
  return isWhole ? Math.max(1, step) : step;
}

function binaryStep(least) {
  return 2 ** Math.max(0, Math.ceil(Math.log2(least)));
}

/** Powers of ten from `least` to at least `most`. */
export function decades(least, most) {
  const ticks = [least];
  while (ticks.at(-1) < most) ticks.push(ticks.at(-1) * 10);
  return ticks;
}

/** From as high as possible to 100 %, for shares that are hardly ever less than `least`. */
export function shares(least) {
  const low = [0.98, 0.9, 0.8, 0.5, 0].find((low) => least >= low) ?? 0;
  return Array.from({ length: 5 }, (_, index) => low + ((1 - low) * index) / 4);
}

/** Round times in a range, at most `count` or so. Unix time. */
export function times(fromSecs, toSecs, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const step = steps.find((step) => (toSecs - fromSecs) / step <= count) ?? 86400;
  const offset = new Date(toSecs * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((fromSecs - offset) / step) * step + offset;
  const ticks = Array.from({ length: Math.floor((toSecs - first) / step) + 1 }, (_, index) => first + index * step);
  return { step, ticks };
}

/** The value that this share of the values does not exceed; undefined: there are none. */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

/** The greatest value, or less if a few values are so great that the others would lie flat. */
export function ceiling(values) {
  const present = values.filter((value) => value > 0);
  const most = Math.max(0, ...present);
  if (present.length < VALUES_MIN) return most;
  const usual = quantile(present, 0.95);
  return most > SPIKE * usual ? usual * 1.2 : most;
}

const VALUES_MIN = 20;
/** A spike is this many times higher than what 95 of 100 values do not exceed. */
const SPIKE = 3;
