// The store: what is in memory, what is on disk, and how fast the disk is.

import { bytes, count, counted, element, micros, percent } from "./format.js";

const STATES = {
  writable: "",
  full: " The disk is full: changes are refused until there is room, and reads go on.",
  failing: " Changes cannot be written at the moment and are refused; it is tried again.",
  read_only: " The store is read-only: an fsync failed. Reads go on; changes are refused until a restart.",
};
const TIMES = {
  commit: "Batch written and durable",
  fsync: "fsync",
  found: "Read from the disk: found",
  absent: "Read from the disk: nothing found",
};

const $ = (id) => document.getElementById(id);

/** Shows what `/api/store` says; null: there is no store. */
export function showStore(store) {
  $("store").hidden = !store;
  if (!store) return;
  const hits = store.memory_hit_ratio;
  $("store-words").textContent = `${counted(store.records, "item is", "items are")} on disk, and `
    + `${count(store.memory_items)} of them in memory`
    + (hits === null ? "." : `, where ${percent(hits)} of the reads that hit found theirs.`)
    + STATES[store.state];
  $("store-words").classList.toggle("bad", store.state !== "writable");
  const disk = Math.max(1, store.disk_bytes + (store.disk_free_bytes ?? 0));
  const scale = Math.max(1, store.disk_bytes, store.memory_limit_bytes);
  const bars = [
    ["Items in memory", `${bytes(store.memory_used_bytes)} of ${bytes(store.memory_limit_bytes)}`,
      store.memory_used_bytes / scale],
    ["Index, in memory beside that", bytes(store.index_bytes), store.index_bytes / scale],
    ["Items on disk", bytes(store.live_bytes), store.live_bytes / scale],
    ["Files on disk", bytes(store.disk_bytes), store.disk_bytes / scale],
  ];
  $("store-places").replaceChildren(...bars.map(([name, value, share]) => {
    const item = element("li", "", element("span", "", name), element("span", "", value));
    item.style.setProperty("--share", Math.min(1, share));
    return item;
  }));
  const notes = [
    store.disk_free_bytes === null ? "" : `The file system has ${bytes(store.disk_free_bytes)} left, `
      + `${percent(store.disk_free_bytes / disk, 0)} of what the store could take.`,
    store.write_amplification === null ? ""
      : `${store.write_amplification.toFixed(2)} bytes were written for each that was stored.`,
    store.cleaning_debt_bytes ? `Cleaning has ${bytes(store.cleaning_debt_bytes)} to give back.` : "",
  ];
  $("store-disk").textContent = notes.filter(Boolean).join(" ");
  $("store-queue").textContent = `On their way: ${counted(store.journal_changes, "change")} to the disk, `
    + `${counted(store.lookups_waiting, "look-up")}.${store.batch_changes === null ? ""
      : ` A batch has ${counted(store.batch_changes, "change")} on average.`}`;
  $("store-times").querySelector("tbody").replaceChildren(...store.times.map((times) => element("tr", "",
    element("td", "", TIMES[times.what]),
    ...[count(times.count), ...[times.p50_micros, times.p99_micros, times.p999_micros].map(micros)]
      .map((text) => element("td", "n", text)))));
}
