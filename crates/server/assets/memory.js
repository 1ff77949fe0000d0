// The memory as it is: cells of equal size, in the order of the queues, oldest first.

import { bytes, colour, duration, element, percent } from "./format.js";

const QUEUES = [["small", "Small queue: new items"], ["main", "Main queue: read again"], ["large", "Large values"]];
const HUES = ["main", "small", "large", "other", "miss", "hit"];
const NOTES = {
  live: "Each cell is a piece of memory; the fuller its colour, the more of it is used by items that can be found.",
  age: "Each cell is a piece of memory; the fuller its colour, the longer ago it was filled.",
  lifetime: "Each cell is a piece of memory; items that expire at about the same time share it and go together.",
};

export class MemoryMap {
  constructor() {
    this.canvas = document.getElementById("map");
    this.mode = "live";
    this.cells = [];
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.tell(null));
    this.canvas.addEventListener("blur", () => this.tell(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  setMode(mode) {
    this.mode = mode;
    this.draw();
  }

  show(memory) {
    this.memory = memory;
    const unit = memory.cell_bytes;
    const times = (amount, cell) => Array(Math.round(amount / unit)).fill(cell);
    // A large value covers as many cells as it has memory.
    const held = memory.cells.flatMap((cell) => Array(Math.max(1, Math.round(cell.memory_bytes / unit))).fill(cell));
    const other = [
      ...times(memory.free_bytes, { kind: "free" }),
      ...times(memory.index_bytes, { kind: "index" }),
      ...times(memory.ghost_bytes, { kind: "ghost" }),
    ];
    const unused = Math.max(0, Math.floor(memory.limit_bytes / unit) - held.length - other.length);
    this.cells = [...held, ...other, ...Array(unused).fill({ kind: "unused" })];
    this.age_max = Math.max(60, ...memory.cells.map((cell) => cell.age_secs));
    this.draw();
    this.table();
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth - padding(this.canvas.parentElement);
    if (!this.memory || width <= 0) return;
    document.getElementById("map-note").textContent = `${NOTES[this.mode]} A cell is ${bytes(this.memory.cell_bytes)}.`;
    this.across = Math.floor(width / Math.min(16, Math.max(4, Math.sqrt((width * 190) / this.cells.length))));
    this.size = width / this.across;
    const height = Math.round(Math.ceil(this.cells.length / this.across) * this.size);
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const colours = Object.fromEntries([...HUES, "spare", "unused"].map((name) => [name, colour(name)]));
    this.cells.forEach((cell, index) => {
      const x = Math.round((index % this.across) * this.size);
      const y = Math.round(Math.floor(index / this.across) * this.size);
      const [hue, share] = this.paint(cell);
      const side = Math.floor(this.size) - (this.size > 6 ? 2 : 1);
      context.globalAlpha = 1;
      context.fillStyle = colours.unused;
      context.fillRect(x, y, side, side);
      context.globalAlpha = share;
      context.fillStyle = colours[hue];
      context.fillRect(x, y, side, side);
    });
    this.label();
    this.keys();
  }

  /** Colour, and how much of it. */
  paint(cell) {
    if (cell.kind) {
      return { free: ["spare", 0.35], index: ["spare", 1], ghost: ["spare", 0.65], unused: ["unused", 1] }[cell.kind];
    }
    const live = Math.min(1, cell.live_bytes / Math.max(1, cell.memory_bytes));
    if (this.mode === "lifetime") return [HUES[cell.group % HUES.length], 0.9];
    const hue = QUEUES[cell.queue][0];
    if (this.mode === "age") return [hue, 0.15 + 0.85 * Math.min(1, cell.age_secs / this.age_max)];
    return [hue, 0.15 + 0.85 * live];
  }

  keys() {
    const spare = [["spare", 1, "Index"], ["spare", 0.65, "Ghost: recently evicted keys"], ["spare", 0.35, "Free"],
      ["unused", 1, "Not taken yet"]];
    const shown = this.mode === "lifetime"
      ? this.memory.lifetimes.map((group, index) => [HUES[index % HUES.length], 0.9, lifetime(this.memory, index)])
          .filter((_, index) => this.memory.lifetimes[index].memory_bytes > 0)
      : QUEUES.map(([hue, name]) => [hue, 1, name]);
    document.getElementById("map-legend").replaceChildren(...[...shown, ...spare].map(([hue, share, name]) => {
      const key = element("span", "key");
      key.style.background = `color-mix(in srgb, var(--${hue}) ${share * 100}%, var(--unused))`;
      return element("li", "", key, name);
    }));
  }

  label() {
    const { used_bytes: used, limit_bytes: limit } = this.memory;
    this.canvas.setAttribute("aria-label", `Map of the memory: ${bytes(used)} of ${bytes(limit)} taken. `
      + "The table below has the sums; arrow keys read single cells.");
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.size);
    const row = Math.floor((event.clientY - box.top) / this.size);
    this.tell(column < this.across ? row * this.across + column : null);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across }[event.key];
    if (!step) return;
    event.preventDefault();
    this.tell(Math.min(Math.max((this.at ?? -1) + step, 0), this.cells.length - 1));
  }

  tell(at) {
    this.at = at;
    const cell = this.cells[at];
    const names = { free: "Free, ready for new items", index: "Index: finds the items",
      ghost: "Ghost: remembers recently evicted keys", unused: "Not taken from the system yet" };
    document.getElementById("map-cell").textContent = !cell ? "" : cell.kind ? names[cell.kind] : [
      QUEUES[cell.queue][1],
      `${bytes(cell.memory_bytes)}, ${percent(Math.min(1, cell.live_bytes / cell.memory_bytes), 0)} in use`,
      cell.is_open ? "being filled" : `filled ${duration(cell.age_secs)} ago`,
      lifetime(this.memory, cell.group).toLowerCase(),
    ].join(" · ");
  }

  table() {
    const rows = this.memory.queues.map((queue, index) => element("tr", "",
      element("td", "", QUEUES[index][1]),
      ...[
        queue.items.toLocaleString("en"),
        bytes(queue.memory_bytes),
        queue.memory_bytes ? percent(Math.min(1, queue.live_bytes / queue.memory_bytes), 0) : "–",
        queue.segments ? duration(queue.age_secs) : "–",
        queue.hits.toLocaleString("en"),
        queue.evictions.toLocaleString("en"),
      ].map((text) => element("td", "n", text))));
    document.querySelector("#places tbody").replaceChildren(...rows);
  }
}

function lifetime(memory, index) {
  const { expires, ttl_max_secs: most } = memory.lifetimes[index];
  if (!expires) return "Never expires";
  if (most) return `Expires within ${duration(most)}`;
  const before = memory.lifetimes[index - 1]?.ttl_max_secs;
  return before ? `Expires after more than ${duration(before)}` : "Expires";
}

function padding(of) {
  const style = getComputedStyle(of);
  return parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
}
