// The charts, and the time that all of them show: the latest, or a range that the user has zoomed to.

import { Chart } from "./chart.js";
import { bytes, bytesTick, clock, count, countTick, micros, percent, percentTick, short } from "./format.js";

const RANGE_SECS_MIN = 10;
/** There is a mouse, and probably a keyboard. */
const CAN_HOVER = matchMedia("(hover: hover)").matches;

export class Charts {
  constructor() {
    Object.assign(this, { spanSecs: 300, range: null, isWhole: false, memoryBytes: null, history: null });
    const on = {
      cursor: (index) => this.all.forEach((chart) => chart.move(index)),
      zoom: (fromSecs, toSecs) => this.zoom(fromSecs, toSecs),
      scaleTime: (factor, aroundSecs) => this.scaleTime(factor, aroundSecs),
      pan: (share) => this.pan(share),
      reset: () => this.zoom(null),
    };
    this.all = Object.entries(this.definitions())
      .map(([name, definition]) => new Chart(document.getElementById(`chart-${name}`), definition, on));
    document.getElementById("zoom-reset").addEventListener("click", () => this.zoom(null));
  }

  definitions() {
    return {
      ratio: {
        title: "Hit ratio", format: percent, tick: percentTick, scale: "share",
        series: [{ name: "hit ratio", colour: "hit", of: ratio }],
      },
      requests: {
        title: "Requests a second", format: count, tick: countTick,
        series: [
          { name: "hits", colour: "hit", of: (point) => point.hits, area: true },
          { name: "misses", colour: "miss", of: (point) => point.misses },
          { name: "stores", colour: "store", of: (point) => point.stores },
          { name: "others", colour: "other", of: (point) => point.others },
        ],
      },
      latency: {
        title: "Service time", format: micros, scale: "log",
        series: [
          { name: "p50", colour: "hit", of: (point) => point.p50_micros },
          { name: "p90", colour: "store", of: (point) => point.p90_micros },
          { name: "p99", colour: "other", of: (point) => point.p99_micros },
          { name: "p99.9", colour: "miss", of: (point) => point.p999_micros },
        ],
      },
      leaving: {
        title: "Evicted and expired items a second", format: count, tick: countTick,
        series: [
          { name: "evicted", colour: "miss", of: (point) => point.evicted, area: true },
          { name: "expired", colour: "other", of: (point) => point.expired },
        ],
      },
      cpu: {
        title: "Processor time, in cores", format: short, scale: "fraction", least: 0.1,
        series: [{ name: "cores", colour: "hit", of: (point) => point.cpu_cores, area: true }],
      },
      memory: {
        title: "Memory", format: bytes, tick: bytesTick, scale: "bytes", isGauge: true,
        series: [
          { name: "used", colour: "hit", of: (point) => point.used_bytes, area: true },
          { name: "limit", colour: "spare", of: () => this.memoryBytes },
          { name: "resident", colour: "store", of: (point) => point.resident_bytes },
        ],
      },
      network: {
        title: "Bytes a second", format: bytes, tick: bytesTick, scale: "bytes", least: 1024,
        series: [
          { name: "sent", colour: "hit", of: (point) => point.bytes_out, area: true },
          { name: "received", colour: "store", of: (point) => point.bytes_in },
        ],
      },
      connections: {
        title: "Open connections", format: count, tick: countTick, isGauge: true,
        series: [{ name: "open", colour: "hit", of: (point) => point.connections, area: true }],
      },
    };
  }

  /** `history` has the points by second and by minute; the server's time, its age and its memory go with them. */
  show(history, { now_secs: nowSecs, uptime_secs: uptimeSecs, memory }) {
    Object.assign(this, { history, nowSecs, uptimeSecs, memoryBytes: memory.limit_bytes });
    this.draw();
  }

  setSpan(secs) {
    this.spanSecs = secs;
    this.zoom(null);
  }

  /** Whether the scale reaches to the highest spike. */
  setWhole(isWhole) {
    this.isWhole = isWhole;
    this.draw();
  }

  zoom(fromSecs, toSecs) {
    this.range = fromSecs === null ? null : this.bounded(fromSecs, toSecs);
    this.draw();
  }

  scaleTime(factor, aroundSecs) {
    const [from, to] = this.shown();
    if (factor > 1 && to - from >= this.oldestSpan()) return this.zoom(null);
    return this.zoom(aroundSecs - (aroundSecs - from) * factor, aroundSecs + (to - aroundSecs) * factor);
  }

  pan(share) {
    const [from, to] = this.shown();
    const shift = Math.max(this.nowSecs - this.oldestSpan() - from, Math.min(this.nowSecs - to, share * (to - from)));
    this.zoom(from + shift, to + shift);
  }

  /** How far back the charts can go. */
  oldestSpan() {
    return Math.min(86400, Math.max(60, this.uptimeSecs));
  }

  bounded(fromSecs, toSecs) {
    const to = Math.min(toSecs, this.nowSecs);
    const from = Math.max(this.nowSecs - this.oldestSpan(), Math.min(fromSecs, to - RANGE_SECS_MIN));
    return [from, Math.max(to, from + RANGE_SECS_MIN)];
  }

  shown() {
    // A server that has just started does not leave most of the chart empty.
    return this.range ?? [this.nowSecs - Math.min(this.spanSecs, this.oldestSpan()), this.nowSecs];
  }

  draw() {
    if (!this.history) return;
    const [from, to] = this.shown();
    const { seconds, minutes } = this.history;
    // Seconds tell more, as far as they reach back.
    const haveSeconds = !minutes.length || from >= (seconds[0]?.at_secs ?? 0) - 2 || this.uptimeSecs <= seconds.length;
    const all = haveSeconds ? seconds : minutes;
    const points = all.filter((point) => point.at_secs >= from && point.at_secs <= to);
    if (points.length !== this.shownPoints?.length || points[0] !== this.shownPoints[0]) this.keepCursor(points);
    this.shownPoints = points;
    for (const chart of this.all) chart.show(points, from, to, this.isWhole);
    this.tell(from, to, haveSeconds ? "second" : "minute");
  }

  /** The cursor stays at its time when the points move on. */
  keepCursor(points) {
    for (const chart of this.all) {
      const atSecs = chart.points[chart.cursor]?.at_secs;
      const index = atSecs === undefined ? -1 : points.findIndex((point) => point.at_secs === atSecs);
      chart.cursor = index < 0 ? null : index;
    }
  }

  tell(from, to, step) {
    document.getElementById("zoom-reset").hidden = !this.range;
    const range = this.range ? `From ${clock(from)} to ${clock(to)}, a` : "A";
    const hint = this.range || !CAN_HOVER ? "" : " Drag over a chart to zoom, or press + and − in it.";
    document.getElementById("zoom-note").textContent = `${range} point each ${step}.${hint}`;
  }
}

/** Hits of the reads of a point, 0 to 1; null: no reads. */
export function ratio(point) {
  const reads = point.hits + point.misses;
  return reads > 0 ? point.hits / reads : null;
}
