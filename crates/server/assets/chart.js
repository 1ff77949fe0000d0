// A line chart over time, with a cursor that reads values off it: by pointer, or with the arrow keys.

import { clock, element, shape } from "./format.js";

const HEIGHT = 160;
const LEFT = 46;
const BOTTOM = 20;
const TOP = 16;

/**
 * Series are { name, colour, of(point), area? }; values below zero do not occur, null is a gap.
 * With `log` the scale is logarithmic, from `least` up.
 */
export class Chart {
  constructor(place, { title, series, format, log = false, least = 1 }) {
    Object.assign(this, { series, format, log, least, title, points: [], cursor: null });
    this.svg = shape("svg", { role: "img", tabindex: 0, preserveAspectRatio: "none" });
    this.legend = element("ul", "legend");
    place.classList.add("chart");
    place.append(this.svg, this.legend);
    this.svg.addEventListener("pointermove", (event) => this.point(event.clientX));
    this.svg.addEventListener("pointerleave", () => this.move(null));
    this.svg.addEventListener("blur", () => this.move(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  show(points, fromSecs, toSecs) {
    const atSecs = this.cursor === null ? null : this.points[this.cursor]?.at_secs;
    Object.assign(this, { points: points.filter((point) => point.at_secs >= fromSecs), fromSecs, toSecs });
    const cursor = atSecs === null ? -1 : this.points.findIndex((point) => point.at_secs === atSecs);
    this.cursor = cursor < 0 ? null : cursor;
    this.draw();
  }

  draw() {
    this.width = this.svg.clientWidth;
    if (!this.width || this.fromSecs === undefined) return;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const values = this.points.flatMap((point) => this.series.map((series) => series.of(point) ?? 0));
    this.ticks = this.log ? decades(this.least, Math.max(...values, this.least * 10)) : steps(Math.max(...values, 1));
    this.svg.replaceChildren(...this.axes(), ...this.series.flatMap((series) => this.line(series)), ...this.mark());
    this.tell();
  }

  x(atSecs) {
    return LEFT + ((atSecs - this.fromSecs) / (this.toSecs - this.fromSecs)) * (this.width - LEFT - 2);
  }

  y(value) {
    const [low, high] = [this.ticks[0], this.ticks.at(-1)];
    const share = this.log
      ? Math.log(Math.max(value, low) / low) / Math.log(high / low)
      : value / high;
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
  }

  axes() {
    const rows = this.ticks.flatMap((tick) => [
      shape("line", { class: "grid", x1: LEFT, x2: this.width, y1: this.y(tick), y2: this.y(tick) }),
      shape("text", { x: LEFT - 6, y: this.y(tick) + 4, "text-anchor": "end" }, this.format(tick)),
    ]);
    const times = [[this.fromSecs, "start", LEFT], [this.toSecs, "end", this.width]];
    const columns = times.map(([secs, anchor, x]) =>
      shape("text", { x, y: HEIGHT - 4, "text-anchor": anchor }, clock(secs, false)));
    return [...rows, ...columns];
  }

  line(series) {
    let [path, area, start, last] = ["", "", null, null];
    const close = () => {
      if (start !== null) area += `L${last.toFixed(1)} ${HEIGHT - BOTTOM}L${start.toFixed(1)} ${HEIGHT - BOTTOM}Z`;
      start = null;
    };
    for (const point of this.points) {
      const value = series.of(point);
      if (value == null) {
        close();
        continue;
      }
      const at = `${this.x(point.at_secs).toFixed(1)} ${this.y(value).toFixed(1)}`;
      path += (start === null ? "M" : "L") + at;
      area += (start === null ? "M" : "L") + at;
      last = this.x(point.at_secs);
      start ??= last;
    }
    close();
    // A single second of traffic between pauses is a dot.
    const line = shape("path", { d: path, "stroke-linecap": "round" });
    line.style.stroke = `var(--${series.colour})`;
    if (!series.area) return [line];
    const below = shape("path", { d: area, class: "area" });
    below.style.fill = `var(--${series.colour})`;
    return [below, line];
  }

  mark() {
    const point = this.points[this.cursor];
    if (!point) return [];
    const x = this.x(point.at_secs);
    const isLeft = x < this.width / 2;
    return [
      shape("line", { class: "cursor", x1: x, x2: x, y1: 0, y2: HEIGHT - BOTTOM }),
      shape("text", { x: x + (isLeft ? 5 : -5), y: 10, "text-anchor": isLeft ? "start" : "end" }, clock(point.at_secs)),
    ];
  }

  /** The values under the cursor, else the latest. */
  tell() {
    const point = this.points[this.cursor] ?? this.points.at(-1);
    const told = this.series.map((series) => [series, point ? this.format(series.of(point)) : "–"]);
    this.legend.replaceChildren(...told.map(([series, value]) => {
      const key = element("span", "key");
      key.style.background = `var(--${series.colour})`;
      return element("li", "", key, `${series.name} `, element("b", "", value));
    }));
    const words = told.map(([series, value]) => `${series.name} ${value}`).join(", ");
    const when = this.cursor === null ? "now" : `at ${clock(point.at_secs)}`;
    this.svg.setAttribute("aria-label", `${this.title}, ${when}: ${words}`);
  }

  point(clientX) {
    const x = clientX - this.svg.getBoundingClientRect().left;
    let nearest = null;
    this.points.forEach((point, index) => {
      const distance = Math.abs(this.x(point.at_secs) - x);
      if (nearest === null || distance < nearest[1]) nearest = [index, distance];
    });
    this.move(nearest && nearest[0]);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") return this.move(null);
    if (!step || !this.points.length) return undefined;
    event.preventDefault();
    const from = this.cursor ?? this.points.length - 1;
    return this.move(Math.min(Math.max(from + step, 0), this.points.length - 1));
  }

  move(cursor) {
    if (this.cursor === cursor) return;
    this.cursor = cursor;
    this.draw();
  }
}

/** Three or four round steps from 0 to at least `most`. */
function steps(most) {
  const rough = most / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [1, 2, 2.5, 5, 10].map((factor) => factor * power);
  const step = steps.find((step) => step >= rough && (step >= 1 || most < 1));
  const whole = Math.max(step ?? 10 * power, most >= 1 ? 1 : 0);
  return Array.from({ length: Math.ceil(most / whole) + 1 }, (_, index) => index * whole);
}

function decades(least, most) {
  const ticks = [least];
  while (ticks.at(-1) < most) ticks.push(ticks.at(-1) * 10);
  return ticks;
}
