// The page: asks the server, shows what it says, and says so when it does not answer.

import { Chart } from "./chart.js";
import { bytes, clock, count, duration, element, micros, percent } from "./format.js";
import { MemoryMap } from "./memory.js";

const PAUSE_MILLIS = 1000;
const RETRY_MILLIS = 2000;
const PATIENCE_MILLIS = 4000;
const POINTS_MAX = { seconds: 900, day: 1440 };

const $ = (id) => document.getElementById(id);
const total = (point) => point.hits + point.misses + point.stores + point.others;

const charts = {
  requests: new Chart($("chart-requests"), {
    title: "Requests a second",
    format: count,
    series: [
      { name: "hits", colour: "hit", of: (point) => point.hits, area: true },
      { name: "misses", colour: "miss", of: (point) => point.misses },
      { name: "stores", colour: "store", of: (point) => point.stores },
      { name: "others", colour: "other", of: (point) => point.others },
    ],
  }),
  latency: new Chart($("chart-latency"), {
    title: "Service time",
    format: micros,
    log: true,
    least: 1,
    series: [
      { name: "p50", colour: "hit", of: (point) => point.p50_micros },
      { name: "p90", colour: "store", of: (point) => point.p90_micros },
      { name: "p99", colour: "other", of: (point) => point.p99_micros },
      { name: "p99.9", colour: "miss", of: (point) => point.p999_micros },
    ],
  }),
  leaving: new Chart($("chart-leaving"), {
    title: "Items that leave the cache, a second",
    format: count,
    series: [
      { name: "evicted", colour: "miss", of: (point) => point.evicted, area: true },
      { name: "expired", colour: "other", of: (point) => point.expired },
    ],
  }),
  connections: new Chart($("chart-connections"), {
    title: "Open connections",
    format: count,
    series: [{ name: "open", colour: "hit", of: (point) => point.connections, area: true }],
  }),
};
const map = new MemoryMap();

const state = { span: "300", seconds: [], day: [], overview: null, heard: null, turn: 0 };

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
  if (state.overview && state.overview.pid !== overview.pid) Object.assign(state, { seconds: [], day: [], turn: 0 });
  state.overview = overview;
  await extend("seconds", "history?");
  if (state.turn % 30 === 0 || !state.day.length) await extend("day", "history?span=day&");
  const connections = await ask("connections");
  showOverview(overview, connections);
  showCharts();
  if (state.turn % 2 === 0) map.show(await ask("memory"));
  if (state.turn % 3 === 0) {
    const [keys, curve, slow] = await Promise.all([ask("keys"), ask("curve"), ask("slow")]);
    showKeys(keys);
    showCurve(curve);
    showSlow(slow);
  }
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
  const { memory, requests, evictions } = overview;
  $("about").textContent = `${location.host} · larderd ${overview.version} · up ${duration(overview.uptime_secs)}`;
  const recent = state.seconds.slice(-10);
  const mean = (of) => recent.reduce((sum, point) => sum + of(point), 0) / Math.max(1, recent.length);
  const [hits, misses] = [mean((point) => point.hits), mean((point) => point.misses)];
  const ever = requests.get_hits + requests.get_misses;
  const ratio = hits + misses > 0 ? hits / (hits + misses) : ever ? requests.get_hits / ever : null;
  const rate = mean(total);
  const medians = recent.filter((point) => point.p50_micros != null);
  const last = medians.at(-1);

  $("summary").textContent = summary(overview, { rate, ratio: hits + misses > 0 ? ratio : null, last });
  const isEmpty = overview.items === 0 && overview.items_stored === 0;
  $("empty").hidden = !isEmpty;
  if (isEmpty) $("empty-example").textContent = example(connections.listeners);

  const figures = [
    ["Requests", `${count(rate)} /s`,
      `${count(mean((point) => point.hits + point.misses))} reads, ${count(mean((point) => point.stores))} stores`],
    ["Hit ratio", percent(ratio),
      hits + misses > 0 ? "of reads, last 10 s" : ever ? "of reads, since the start" : "no reads yet"],
    ["Service time", last ? micros(last.p50_micros) : "–",
      overview.is_latency_measured ? (last ? `p99 ${micros(last.p99_micros)}` : "no requests") : "not measured"],
    ["Items", count(overview.items), `${bytes(memory.used_bytes)} of ${bytes(memory.limit_bytes)}`],
    ["Evicted", `${count(mean((point) => point.evicted))} /s`, `${count(evictions.evicted)} since the start`],
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

/** What there is to know, in a sentence or two. */
function summary(overview, { rate, ratio, last }) {
  const { used_bytes: used, limit_bytes: limit } = overview.memory;
  const share = used / limit;
  const now = rate < 0.05
    ? "Nobody asks for anything at the moment."
    : `Serving ${count(rate)} requests a second${last ? `, half of them within ${micros(last.p50_micros)}` : ""}.`;
  const found = ratio === null ? "" : ` ${Math.round(ratio * 100)} of 100 reads find what they ask for.`;
  const room = !overview.evicts && share > 0.97
    ? " Memory is full, and stores fail."
    : share > 0.97 ? " Memory is full, so new items push out old ones."
    : ` ${percent(share, 0)} of the memory is taken.`;
  return now + found + room;
}

function example(listeners) {
  const plain = listeners.find((listener) => !listener.has_tls) ?? listeners[0];
  if (!plain) return "";
  const target = plain.address.startsWith("/")
    ? `-U ${plain.address}`
    : plain.address.replace("0.0.0.0", "127.0.0.1").replace("[::]", "::1").replace(/:(\d+)$/, " $1");
  return `printf 'set greeting 0 0 5\\r\\nhello\\r\\nget greeting\\r\\nquit\\r\\n' | nc ${target}`;
}

function showCharts() {
  const isDay = state.span === "day";
  const to = state.overview.now_secs;
  // A server that has just started does not leave most of the chart empty.
  const startSecs = to - Math.max(60, state.overview.uptime_secs);
  const from = Math.max(to - (isDay ? 86400 : Number(state.span)), startSecs);
  // As long as the seconds reach back to the start, they tell more.
  const points = isDay && state.overview.uptime_secs > POINTS_MAX.seconds ? state.day : state.seconds;
  for (const chart of Object.values(charts)) chart.show(points, from, to);
}

function showConnections(connections) {
  const most = Math.max(1, ...connections.workers);
  $("connections-note").textContent = `Open at a time. ${count(connections.accepted)} accepted since the start`
    + (connections.rejected
      ? `, ${count(connections.rejected)} refused at the limit of ${count(connections.open_max)}` : "")
    + `${connections.logins_failed ? `, ${count(connections.logins_failed)} logins failed` : ""}.`;
  bars($("workers"), connections.workers.map((open, worker) => [`worker ${worker}`, count(open), open / most]));
  $("listeners-note").textContent = connections.listeners.length ? "Where clients come in." : "There is none for TCP.";
  $("listeners").replaceChildren(...connections.listeners.map((listener) =>
    element("li", "", element("code", "", listener.address), listener.has_tls ? " with TLS" : "")));
}

function showKeys({ is_measured: isMeasured, is_withheld: isWithheld, prefix_delimiter: delimiter, keys, prefixes }) {
  const why = !isMeasured
    ? "Not measured: -o no_hot_keys."
    : isWithheld ? "Keys are shown on a loopback listener, or to those who name a token." : null;
  $("keys-note").textContent = why ?? "How often they were asked for of late, about.";
  $("prefixes-note").textContent = why ?? `What stands before the first “${delimiter}” of a key.`;
  for (const [place, entries] of [[$("keys"), keys], [$("prefixes"), prefixes]]) {
    const most = Math.max(1, ...entries.map((entry) => entry.requests));
    const shown = entries.slice(0, 12)
      .map((entry) => [entry.name || "(empty)", count(entry.requests), entry.requests / most]);
    bars(place, shown, why ? "" : "None yet.", "mono");
  }
}

function showCurve({ is_measured: isMeasured, memory_bytes: memory, points }) {
  const known = points.filter((point) => point.hit_ratio !== null);
  $("curve-words").textContent = !isMeasured
    ? "This is not measured: -o no_hit_ratio_curve, or no eviction (-M)."
    : known.length ? advice(known, memory)
    : "After some thousand reads this tells what other amounts of memory would do to the hit ratio.";
  bars($("curve"), known.map((point) => [
    `${bytes(memory * point.factor)}${point.factor === 1 ? ", as now" : ""}`,
    percent(point.hit_ratio),
    point.hit_ratio,
    point.factor === 1 ? "is-now" : "",
  ]));
}

/** What the curve means for whoever pays for the memory. */
function advice(points, memory) {
  const at = (factor) => points.find((point) => point.factor === factor)?.hit_ratio;
  const [half, now, twice, four] = [0.5, 1, 2, 4].map(at);
  const more = (to) => Math.round((to - now) * 100);
  const reads = (number) => `${Math.abs(number)} more of every 100 reads`;
  const up = more(twice) >= 1
    ? `With twice the memory (${bytes(memory * 2)}), about ${reads(more(twice))} would find what they ask for.`
    : more(four) >= 1
      ? `Twice the memory would change little; four times as much would let about ${reads(more(four))} hit.`
      : "More memory would bring next to nothing.";
  const down = more(half) <= -1
    ? `With half of it (${bytes(memory / 2)}), about ${reads(more(half))} would miss.`
    : `Half of it (${bytes(memory / 2)}) would do as well.`;
  return `${up} ${down}`;
}

function showSlow({ is_measured: isMeasured, batches }) {
  $("slow-note").textContent =
    "Those that took a millisecond and more, with the requests that were served together with them.";
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

onSwitch("span", (span) => {
  state.span = span;
  if (state.overview) showCharts();
});
onSwitch("map-mode", (mode) => map.setMode(mode));
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value.trim());
  round();
});
round();
