// The page: asks the server, shows what it says, and says so when it does not answer.

import { Charts, ratio } from "./charts.js";
import { showPeers } from "./peers.js";
import { bytes, clock, count, counted, duration, element, micros, percent, short } from "./format.js";
import { MemoryMap } from "./memory.js";
import { showSites } from "./sites.js";
import { showStore } from "./store.js";

const PAUSE_MILLIS = 1000;
const RETRY_MILLIS = 2000;
const PATIENCE_MILLIS = 4000;
/** With fewer, most reads are the first of their key, and the hit ratio at any size is unknown. */
const READS_PER_ITEM_MIN = 4;
const POINTS_MAX = { seconds: 900, minutes: 1440 };

const $ = (id) => document.getElementById(id);
const charts = new Charts();
const map = new MemoryMap();

const state = { seconds: [], minutes: [], overview: null, curve: null, heard: null, turn: 0, namespaces: [] };

/** Asks for JSON. Throws if there is no answer in time, or none of use. */
async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(`/api/${path}`, { headers, signal: AbortSignal.timeout(PATIENCE_MILLIS) });
  if (!response.ok) throw Object.assign(new Error(path), { status: response.status });
  return response.json();
}

async function round() {
  try {
    await refresh();
    state.heard = Date.now();
    appear("up");
  } catch (error) {
    if (error.status === 401) return askForToken();
    appear("gone");
  }
  return setTimeout(round, document.body.classList.contains("is-gone") ? RETRY_MILLIS : PAUSE_MILLIS);
}

async function refresh() {
  if (document.hidden && state.overview) return;
  const overview = await ask("overview");
  // Another process than before: what it did begins anew.
  if (state.overview && state.overview.process_id !== overview.process_id) {
    Object.assign(state, { seconds: [], minutes: [], turn: 0 });
  }
  state.overview = overview;
  await extend("seconds", "history?");
  if (state.turn % 30 === 0 || !state.minutes.length) await extend("minutes", "history?span=day&");
  const connections = await ask("connections");
  if (state.turn % 2 === 0) showNamespaces(await ask("namespaces"));
  showOverview(overview, connections);
  charts.show(state, overview);
  if (state.turn % 2 === 0) showPeers(overview, (await ask("peers")).peers);
  if (state.turn % 2 === 0) map.show(await ask("memory"));
  if (state.turn % 2 === 0) showStore(overview.has_store ? await ask("store") : null);
  if (state.turn % 2 === 0) showSites(overview.has_site ? await ask("sites") : null);
  if (state.turn % 3 === 0) {
    const [keys, curve, slow] = await Promise.all([ask("keys"), ask("curve"), ask("slow")]);
    showKeys(keys);
    state.curve = curve;
    showSlow(slow);
  }
  showCurve(state.curve);
  showConnections(connections);
  state.turn += 1;
}

async function extend(ring, path) {
  const after = state[ring].at(-1)?.at_secs ?? 0;
  const { points } = await ask(`${path}after=${after}`);
  state[ring] = [...state[ring], ...points].slice(-POINTS_MAX[ring]);
}

function appear(as) {
  document.body.className = `is-${as}`;
  $("token-form").hidden = true;
  $("main").hidden = !state.overview;
  const { overview } = state;
  $("status-text").textContent =
    as === "gone" ? "no answer" : overview.is_ready ? "serving" : "not accepting connections";
  $("gone").hidden = as !== "gone";
  if (as === "gone") {
    const since = state.heard && `What you see is from ${clock(state.heard / 1000)}. `;
    $("gone").textContent =
      `The server does not answer. ${since ?? ""}Trying again every ${RETRY_MILLIS / 1000} seconds.`;
  }
  document.title = as === "gone" ? "larder – no answer" : `larder – ${location.host}`;
}

function askForToken() {
  document.body.className = "";
  $("status-text").textContent = "locked";
  $("token-wrong").hidden = !sessionStorage.getItem("token");
  $("token-form").hidden = false;
  $("gone").hidden = $("main").hidden = true;
  $("token").focus();
}

function showOverview(overview, connections) {
  const { memory, requests, evictions, recent } = overview;
  $("about").textContent = `${location.host} · larderd ${overview.version} · up ${duration(overview.uptime_secs)}`;
  $("summary").textContent = summary(overview);
  // After a restart the items of a store are on disk; its panel says how many.
  const isEmpty = overview.items === 0 && overview.items_stored === 0 && !overview.has_store;
  $("empty").hidden = !isEmpty;
  if (isEmpty) $("empty-example").textContent = example(connections.listeners);

  const now = ratio(recent);
  const ever = requests.get_hits + requests.get_misses;
  const figures = [
    ["Hit ratio", percent(now ?? (ever ? requests.get_hits / ever : null)),
      now !== null ? `of reads, last ${count(recent.window_secs)} s`
        : ever ? "of reads, since the start" : "no reads yet"],
    ["Requests", `${count(total(recent), 4)} /s`,
      `${counted(recent.hits + recent.misses, "read")}, ${counted(recent.stores, "store")}`],
    ["Service time", micros(recent.p50_micros),
      !overview.is_latency_measured ? "not measured"
        : recent.p50_micros === null ? "no requests" : `median; p99 ${micros(recent.p99_micros)}`],
    ["Items", count(overview.items),
      overview.items ? `${bytes(memory.used_bytes / overview.items)} of memory each` : "none stored"],
    ["Memory", bytes(memory.used_bytes), `of ${bytes(memory.limit_bytes)}`],
    ["Evicted", `${count(recent.evicted, 4)} /s`, `${count(evictions.evicted)} since the start`],
    ["CPU", short(recent.cpu_cores),
      `${short(recent.cpu_cores) === "1" ? "core" : "cores"}; ${counted(overview.workers, "worker")}`],
    ["Connections", count(connections.open), `of ${count(connections.open_max)} at most`],
  ];
  $("figures").replaceChildren(...figures.map(([name, value, note]) =>
    element("div", "", element("dt", "", name), element("dd", "", value), element("dd", "", note))));

  $("commands").querySelector("tbody").replaceChildren(...rows(overview.latency, (entry) => [
    entry.command, entry.transport, count(entry.requests),
    micros(entry.p50_micros), micros(entry.p99_micros), micros(entry.p999_micros),
  ], 2, overview.is_latency_measured ? "No requests in the last seconds." : "Not measured: -o no_latency_histograms."));
  const waited = overview.wait;
  $("commands-note").textContent = `Service times of the last seconds.${waited
    ? ` Before that, sockets waited for their worker ${micros(waited.p50_micros)}, `
      + `1 in 100 more than ${micros(waited.p99_micros)}.`
    : ""}`;
}

function total(point) {
  return point.hits + point.misses + point.stores + point.others;
}

/** The state of the server, in a sentence or two. */
function summary({ memory, evicts, recent, has_store: hasStore, is_read_only: isReadOnly }) {
  const share = memory.used_bytes / memory.limit_bytes;
  const [rate, now] = [total(recent), ratio(recent)];
  const requests = rate < 0.05
    ? "No requests at the moment."
    : `Serving ${counted(rate, "request")} a second${
      recent.p50_micros === null ? "" : `, half of them within ${micros(recent.p50_micros)}`}.`;
  const found = now === null ? "" : ` ${Math.round(now * 100)} of 100 reads hit.`;
  const refuses = isReadOnly ? " Changes are refused: the server is read-only for maintenance." : "";
  return requests + found + room(share, evicts, recent, hasStore, state.namespaces) + refuses;
}

function room(share, evicts, recent, hasStore, namespaces) {
  const used = ` ${percent(share, 0)} of the memory is used.`;
  // Each namespace has memory of its own: one may be full, and others empty.
  const full = namespaces.filter((namespace) => namespace.is_full).map(({ name }) => called(name));
  const isSplit = namespaces.length > 1 && full.length < namespaces.length;
  const isFull = isSplit && full.length > 0 ? `${used} That of ${list(full)} is full` : " Memory is full";
  if (recent.refused > 0) return `${isFull}, and stores fail.`;
  if (recent.evicted > 0 && isSplit && full.length === 0) return used;
  if (recent.evicted > 0) return `${isFull}, so new items push out old ones${hasStore ? ", or their copies" : ""}.`;
  if (share <= 0.97) return used;
  return `${isFull}${evicts ? "; nothing is evicted at the moment" : " (-M), and new items will not fit"}.`;
}

function called(name) {
  return name === "<null>" ? "the default namespace" : name;
}

function list(names) {
  const last = names.at(-1);
  return names.length === 1 ? last : `${names.slice(0, -1).join(", ")} and ${last}`;
}

function example(listeners) {
  const plain = listeners.find(({ protocol, has_tls: hasTls }) => !hasTls && ["auto", "ascii"].includes(protocol));
  if (!plain) return "";
  const target = plain.address.startsWith("/")
    ? `-U ${plain.address}`
    : plain.address.replace("0.0.0.0", "127.0.0.1").replace("[::]", "::1").replace(/:(\d+)$/, " $1");
  return `printf 'set greeting 0 0 5\\r\\nhello\\r\\nget greeting\\r\\nquit\\r\\n' | nc ${target}`;
}

/** Without `--namespaces` there are none, and nothing is shown; with them, panels say which they are of. */
function showNamespaces(namespaces) {
  const evicted = new Map(state.namespaces.map((namespace) => [namespace.name, namespace.evicted]));
  const isFull = ({ name, used_bytes: used, limit_bytes: limit, evicted: now }) =>
    used > 0.97 * limit || now > (evicted.get(name) ?? now);
  state.namespaces = namespaces.map((namespace) => ({ ...namespace, is_full: isFull(namespace) }));
  $("namespaces").hidden = namespaces.length === 0;
  document.querySelectorAll(".scope").forEach((scope) => { scope.hidden = namespaces.length === 0; });
  const headings = [...$("namespace-list").tHead.rows[0].cells].slice(1).map((cell) => cell.innerText.trim());
  $("namespace-list").tBodies[0].replaceChildren(...namespaces.map((namespace) => {
    const name = element("th", "", namespace.name);
    name.scope = "row";
    const texts = [
      namespace.is_read_only ? `${namespace.keep}, read-only` : namespace.keep,
      count(namespace.items), usage(namespace.used_bytes, namespace.limit_bytes),
      usage(namespace.disk_bytes, namespace.disk_limit_bytes),
      percent(namespace.gets ? namespace.get_hits / namespace.gets : null),
      count(namespace.gets), count(namespace.sets), count(namespace.evicted), count(namespace.refused),
    ];
    return element("tr", "", name, ...texts.map((text, column) => {
      const cell = element("td", column ? "n" : "", text);
      cell.dataset.heading = headings[column];
      return cell;
    }));
  }));
}

/** `3 MiB of 8 MiB`; without a limit `3 MiB`. */
function usage(used, limit) {
  return limit == null ? bytes(used) : `${bytes(used)} of ${bytes(limit)}`;
}

function showConnections(connections) {
  const most = Math.max(1, ...connections.workers);
  $("connections-note").textContent = `${count(connections.accepted)} accepted since the start`
    + (connections.rejected
      ? `, ${count(connections.rejected)} refused at the limit of ${count(connections.open_max)}` : "")
    + `${connections.logins_failed ? `, ${counted(connections.logins_failed, "login")} failed` : ""}.`;
  bars($("workers"), connections.workers.map((open, worker) => [`worker ${worker}`, count(open), open / most]));
  $("listeners-note").textContent = connections.listeners.length ? "For clients." : "None for TCP.";
  $("listeners").replaceChildren(...connections.listeners.map((listener) =>
    element("li", "", element("code", "", listener.address), listener.protocol === "http" ? " HTTP" : "",
      listener.has_tls ? " with TLS" : "")));
}

function showKeys({ is_measured: isMeasured, is_withheld: isWithheld, prefix_delimiter: delimiter, keys, prefixes }) {
  const why = !isMeasured
    ? "Not measured: -o no_hot_keys."
    : isWithheld ? "Keys are shown on a loopback listener, or with a token." : null;
  $("keys-note").textContent = why ?? "Estimated recent requests.";
  $("prefixes-note").textContent = why ?? `The part of a key before its first “${delimiter}”.`;
  for (const [place, entries] of [[$("keys"), keys], [$("prefixes"), prefixes]]) {
    const most = Math.max(1, ...entries.map((entry) => entry.requests));
    const shown = entries.slice(0, 12)
      .map((entry) => [entry.name || "(empty)", count(entry.requests), entry.requests / most]);
    bars(place, shown, why ? "" : "None yet.", "mono");
  }
}

function showCurve({ is_measured: isMeasured, memory_bytes: memory, measured_hit_ratio: measured, points }) {
  const known = points.filter((point) => point.hit_ratio !== null);
  const early = isMeasured ? tooEarly(known, state.overview) : null;
  const shown = early ? [] : known;
  $("curve-words").textContent = !isMeasured
    ? "This is not measured: -o no_hit_ratio_curve, or no eviction (-M)."
    : early ?? advice(known, memory);
  bars($("curve"), shown.flatMap((point) => {
    const isNow = point.factor === 1;
    const bar = [`${bytes(memory * point.factor)}${isNow ? ", as now: predicted" : ""}`, percent(point.hit_ratio),
      point.hit_ratio, isNow ? "is-now" : ""];
    return isNow && measured !== null
      ? [bar, [`${bytes(memory)}, as now: measured`, percent(measured), measured, "is-measured"]]
      : [bar];
  }));
  $("curve-check").textContent = isMeasured && shown.length ? comparison(shown, measured) : "";
}

/** Why the curve tells nothing yet; null: it does. Reads of keys that were never read before say nothing of memory. */
function tooEarly(points, { items, requests }) {
  if (!points.length) {
    return "Too early to tell: after some thousand reads, this predicts the hit ratio with other amounts of memory.";
  }
  const reads = requests.get_hits + requests.get_misses;
  const needed = READS_PER_ITEM_MIN * items;
  return reads >= needed ? null
    : `Too early to tell: ${counted(reads, "read")} so far, and ${counted(items, "item")}. `
      + `A prediction needs about ${counted(needed, "read")}.`;
}

/** Why the hit ratios of the page differ. */
function comparison(points, measured) {
  const predicted = points.find((point) => point.factor === 1)?.hit_ratio;
  const now = ratio(state.overview.recent);
  const why = measured !== null && predicted !== undefined && Math.abs(predicted - measured) > 0.03
    ? " They differ because the prediction follows a sample of the keys: it can miss a few keys that are read very"
      + " often and never found. The differences between its bars are more exact than the bars."
    : "";
  const other = now !== null && measured !== null && Math.abs(now - measured) > 0.03
    ? ` The hit ratio of the last seconds alone, ${percent(now)}, differs because the load or the cache has changed.`
    : "";
  return `Both weigh the last ten minutes most, and older reads less.${why}${other}`;
}

/** What more or less memory would change. */
function advice(points, memory) {
  const at = (factor) => points.find((point) => point.factor === factor)?.hit_ratio;
  const [half, now, twice, four] = [0.5, 1, 2, 4].map(at);
  const more = (to) => Math.round((to - now) * 100);
  const reads = (number) => `${Math.abs(number)} more of every 100 reads`;
  const up = more(twice) >= 1
    ? `With twice the memory (${bytes(memory * 2)}), about ${reads(more(twice))} would hit.`
    : more(four) >= 1
      ? `Twice the memory would change little; four times as much would let about ${reads(more(four))} hit.`
      : "More memory would change next to nothing.";
  const down = more(half) <= -1
    ? `With half of it (${bytes(memory / 2)}), about ${reads(more(half))} would miss.`
    : `Half of it (${bytes(memory / 2)}) would do as well.`;
  return `${up} ${down}`;
}

function showSlow({ is_measured: isMeasured, batches }) {
  $("slow-note").textContent =
    "A millisecond and more, with the requests that were served in the same batch.";
  $("slow").querySelector("tbody").replaceChildren(...rows(batches.slice(0, 12), (batch) => [
    clock(batch.at_secs), batch.command, batch.transport, count(batch.requests), micros(batch.took_micros),
  ], 3, isMeasured ? "None. Every request took less than a millisecond." : "Not measured: -o no_latency_histograms."));
}

/** Table rows; numbers begin at a column. */
function rows(entries, cells, numbersFrom, nothing) {
  if (!entries.length) {
    const cell = element("td", "nothing", nothing);
    cell.colSpan = 9;
    return [element("tr", "", cell)];
  }
  return entries.map((entry) => element("tr", "", ...cells(entry).map((text, column) =>
    element("td", column >= numbersFrom ? "n" : "", text))));
}

/** A list of names and values with a bar behind each: [name, value, share, class]. */
function bars(place, entries, nothing = "", nameClass = "") {
  const items = entries.map(([name, value, share, className = ""]) => {
    const label = element("span", nameClass, name);
    label.title = name;
    const item = element("li", className, label, element("span", "", value));
    item.style.setProperty("--share", Math.min(1, share));
    return item;
  });
  place.replaceChildren(...items.length || !nothing ? items : [element("li", "nothing", nothing)]);
}

/** A row of buttons of which one is pressed. */
function onSwitch(id, choose) {
  const buttons = [...$(id).querySelectorAll("button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      choose(button.dataset.value);
    });
  }
}

onSwitch("span", (secs) => charts.setSpan(Number(secs)));
onSwitch("spikes", (show) => charts.setWhole(show === "whole"));
onSwitch("map-mode", (mode) => map.setMode(mode));
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value.trim());
  round();
});
round();
