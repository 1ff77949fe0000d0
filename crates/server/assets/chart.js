// A line chart over time. A cursor reads values off it; dragging, or + and -, zooms.

import { clock, element, shape } from "./format.js";
import { ceiling, decades, linear, quantile, shares, times } from "./scale.js";

const HEIGHT = 168;
const LEFT = 56;
const BOTTOM = 20;
const TOP = 20;
const TIME_LABEL_PIXELS = 64;
const VALUE_LABEL_PIXELS = 64;
const DRAG_PIXELS_MIN = 6;

/**
 * Series are { name, colour, of(point), area? }; values below zero do not occur, null is a gap.
 * `scale` is "whole", "fraction" or "bytes" (from 0 up), "log" (from `least` up) or "share" (up to 1).
 * The scale of the first three reaches at least to `least`. `tick(tick, ticks)` is the text of one of an axis's ticks.
 * A gauge is always shown whole: a level that lasts is no spike.
 * `on` has cursor(index or null), zoom(fromSecs, toSecs), scaleTime(factor, aroundSecs), pan(share) and reset().
 */
export class Chart {
  constructor(place, { title, series, format, tick = format, scale = "whole", least = 1, isGauge = false }, on) {
    Object.assign(this, { series, format, tick, scale, least, isGauge, title, on });
    Object.assign(this, { points: [], cursor: null, drag: null });
    this.svg = shape("svg", { role: "img", tabindex: 0, preserveAspectRatio: "none" });
    this.legend = element("ul", "legend");
    place.classList.add("chart");
    place.append(this.svg, this.legend);
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("pointercancel", () => this.stop());
    this.svg.addEventListener("pointerleave", () => this.on.cursor(null));
    this.svg.addEventListener("dblclick", () => this.on.reset());
    this.svg.addEventListener("blur", () => this.on.cursor(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  /** Shows points in a range of time. Without `isWhole`, values far above the others are cut off, and marked. */
  show(points, fromSecs, toSecs, isWhole) {
    Object.assign(this, { points, fromSecs, toSecs, isWhole: isWhole || this.isGauge });
    this.draw();
  }

  /** Moves the cursor to a point; null: to none. */
  move(cursor) {
    if (this.cursor === cursor) return;
    this.cursor = cursor;
    this.draw();
  }

  draw() {
    this.width = this.svg.clientWidth;
    if (!this.width || this.fromSecs === undefined) return;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.ticks = this.valueTicks();
    this.svg.replaceChildren(...this.axes(), ...this.series.flatMap((series) => this.line(series)),
      ...this.cutOff(), ...this.selection(), ...this.mark());
    this.tell();
  }

  valueTicks() {
    const of = (point) => this.series.map((series) => series.of(point)).filter((value) => value != null);
    const values = this.points.map(of);
    if (this.scale === "share") {
      const all = values.flat();
      return shares(this.isWhole && all.length ? Math.min(1, ...all) : quantile(all, 0.05) ?? 0);
    }
    const tops = values.map((of) => Math.max(0, ...of));
    if (this.scale === "log") return decades(this.least, Math.max(...tops, this.least * 10));
    return linear(Math.max(this.isWhole ? Math.max(0, ...tops) : ceiling(tops), this.least), this.scale);
  }

  x(atSecs) {
    return LEFT + ((atSecs - this.fromSecs) / (this.toSecs - this.fromSecs)) * (this.width - LEFT - 4);
  }

  time(x) {
    const share = Math.min(1, Math.max(0, (x - LEFT) / (this.width - LEFT - 4)));
    return this.fromSecs + share * (this.toSecs - this.fromSecs);
  }

  y(value) {
    const [low, high] = [this.ticks[0], this.ticks.at(-1)];
    const within = Math.min(Math.max(value, low), high);
    const share = this.scale === "log"
      ? Math.log(within / low) / Math.log(high / low)
      : (within - low) / (high - low);
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
  }

  axes() {
    const rows = this.ticks.flatMap((tick) => [
      shape("line", { class: "grid", x1: LEFT, x2: this.width, y1: this.y(tick), y2: this.y(tick) }),
      shape("text", { x: LEFT - 6, y: this.y(tick) + 4, "text-anchor": "end" }, this.tick(tick, this.ticks)),
    ]);
    const count = Math.max(2, (this.width - LEFT) / TIME_LABEL_PIXELS);
    const { step, ticks } = times(this.fromSecs, this.toSecs, count);
    const columns = ticks.flatMap((secs) => {
      const x = this.x(secs);
      const half = step < 60 ? 25 : 15;
      const grid = shape("line", { class: "grid", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 });
      if (x - half < LEFT - 20 || x + half > this.width) return [grid];
      return [grid, shape("text", { x, y: HEIGHT - 4, "text-anchor": "middle" }, clock(secs, step < 60))];
    });
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

  /** Marks for values beyond the scale: the most extreme of neighbours has its value. */
  cutOff() {
    const [low, high] = [this.ticks[0], this.ticks.at(-1)];
    const excess = (value) => (value > high ? value / high : this.scale === "share" ? low - value : 0);
    const found = [];
    for (const point of this.points) {
      for (const series of this.series) {
        const value = series.of(point);
        if (value == null || excess(value) <= 0) continue;
        const mark = { x: this.x(point.at_secs), value, series };
        const neighbour = found.findLast((other) => mark.x - other.x < VALUE_LABEL_PIXELS);
        if (!neighbour) found.push(mark);
        else if (excess(value) > excess(neighbour.value)) Object.assign(neighbour, mark);
      }
    }
    return found.flatMap(({ x, value, series }) => {
      const isAbove = value > high;
      const y = isAbove ? TOP : HEIGHT - BOTTOM;
      const arrow = shape("path", { class: "cut", d: `M${x - 4} ${y}L${x + 4} ${y}L${x} ${y + (isAbove ? -6 : 6)}Z` });
      arrow.style.fill = `var(--${series.colour})`;
      const isRight = x > this.width - VALUE_LABEL_PIXELS;
      const label = { class: "cut", x: x + (isRight ? -7 : 7), y: isAbove ? y - 3 : y - 4,
        "text-anchor": isRight ? "end" : "start" };
      return [arrow, shape("text", label, this.format(value))];
    });
  }

  selection() {
    if (!this.drag) return [];
    const [from, to] = [this.drag.from, this.drag.to].sort((a, b) => a - b);
    return [shape("rect", { class: "selection", x: from, width: to - from, y: TOP, height: HEIGHT - TOP - BOTTOM })];
  }

  mark() {
    const point = this.points[this.cursor];
    if (!point) return [];
    const x = this.x(point.at_secs);
    const isLeft = x < this.width / 2;
    return [
      shape("line", { class: "cursor", x1: x, x2: x, y1: 0, y2: HEIGHT - BOTTOM }),
      shape("text", { x: x + (isLeft ? 5 : -5), y: 9, "text-anchor": isLeft ? "start" : "end", class: "when" },
        clock(point.at_secs)),
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
    const when = point ? `at ${clock(point.at_secs)}` : "no data";
    this.svg.setAttribute("aria-label", `${this.title}, ${when}: ${words}. `
      + "Arrow keys read other times, plus and minus zoom, Escape removes the cursor, then ends the zoom.");
  }

  press(event) {
    // A finger scrolls, and reads values.
    if (event.button !== 0 || event.pointerType === "touch") return;
    this.svg.setPointerCapture(event.pointerId);
    const x = Math.max(LEFT, this.left(event));
    this.drag = { from: x, to: x };
  }

  point(event) {
    const x = this.left(event);
    if (this.drag) {
      this.drag.to = Math.min(this.width - 4, Math.max(LEFT, x));
      this.draw();
    }
    let nearest = null;
    this.points.forEach((point, index) => {
      const distance = Math.abs(this.x(point.at_secs) - x);
      if (nearest === null || distance < nearest[1]) nearest = [index, distance];
    });
    this.on.cursor(nearest && nearest[0]);
  }

  release() {
    const { drag } = this;
    this.stop();
    if (!drag || Math.abs(drag.to - drag.from) < DRAG_PIXELS_MIN) return;
    const [from, to] = [drag.from, drag.to].sort((a, b) => a - b);
    this.on.zoom(this.time(from), this.time(to));
  }

  stop() {
    this.drag = null;
    this.draw();
  }

  left(event) {
    return event.clientX - this.svg.getBoundingClientRect().left;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    const around = this.points[this.cursor]?.at_secs ?? this.toSecs;
    if (event.key === "Escape") this.cursor === null ? this.on.reset() : this.on.cursor(null);
    else if (factor) this.on.scaleTime(factor, around);
    else if (direction && event.shiftKey) this.on.pan(direction / 4);
    else if (direction && this.points.length) {
      const from = this.cursor ?? this.points.length - 1;
      this.on.cursor(Math.min(Math.max(from + direction, 0), this.points.length - 1));
    } else return;
    event.preventDefault();
  }
}
