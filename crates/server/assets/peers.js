// The table of servers: this one, and those that --admin-peers names.

import { bytes, count, duration, element, percent } from "./format.js";
import { ratio } from "./charts.js";

const COLUMNS = 9;
/** Headings of the numbers; on a narrow screen each number stands behind its own. */
const NUMBERS = ["Up", "Hit ratio", "Requests/s", "Memory", "Connections", "Evicted/s"];

/** Fills the table. `own` is this server's overview. Without other servers there is no table. */
export function showPeers(own, peers) {
  const others = peers.filter((peer) => !peer.is_own);
  document.getElementById("peers").hidden = peers.length === 0;
  if (!peers.length) return;
  const name = peers.find((peer) => peer.is_own)?.address ?? location.host;
  const rows = [{ address: name, figures: own, isThis: true }, ...others];
  const down = others.filter((peer) => peer.reason);
  const note = document.getElementById("peers-note");
  note.textContent = down.length
    ? `${count(down.length)} of ${count(rows.length)} servers cannot be reached. The figures are without them.`
    : "Figures of the last seconds. A name leads to the page of its server.";
  note.className = down.length ? "bad" : "muted";
  const table = document.getElementById("servers");
  table.tBodies[0].replaceChildren(...rows.map(row));
  table.tFoot.replaceChildren(totals(rows.filter(({ figures }) => figures).map(({ figures }) => figures), rows.length));
}

function row({ address, url, figures, reason, isThis }) {
  const link = element("a", "", address);
  link.href = url ?? "/";
  const name = isThis ? element("th", "", address, element("span", "muted", " this server")) : element("th", "", link);
  name.scope = "row";
  if (!figures) {
    const text = element("span", "reason", reason ? `unreachable: ${reason}` : "being asked");
    const why = element("td", reason ? "bad" : "muted", text);
    why.colSpan = COLUMNS - 1;
    return element("tr", "", name, why);
  }
  const state = figures.is_ready ? element("td", "", "serving") : element("td", "bad", "accepts no connections");
  return element("tr", "", name, state, element("td", "", figures.version),
    ...numbers([duration(figures.uptime_secs), ...cells(figures.recent, figures.memory)], NUMBERS));
}

function totals(all, servers) {
  const sum = (of) => all.reduce((total, figures) => total + of(figures), 0);
  const recent = Object.fromEntries(["hits", "misses", "stores", "others", "connections", "evicted"]
    .map((name) => [name, sum((figures) => figures.recent[name])]));
  const memory = { used_bytes: sum((figures) => figures.memory.used_bytes),
    limit_bytes: sum((figures) => figures.memory.limit_bytes) };
  const name = element("th", "", "All");
  name.scope = "row";
  const state = element("td", "", `${count(all.length)} of ${count(servers)} answer`);
  state.colSpan = 3;
  return element("tr", "", name, state, ...numbers(cells(recent, memory), NUMBERS.slice(1)));
}

function cells(recent, memory) {
  const { hits, misses, stores, others, connections, evicted } = recent;
  return [percent(ratio(recent)), count(hits + misses + stores + others),
    `${bytes(memory.used_bytes)} of ${bytes(memory.limit_bytes)}`, count(connections), count(evicted)];
}

function numbers(texts, headings) {
  return texts.map((text, column) => {
    const cell = element("td", "n", text);
    cell.dataset.heading = headings[column];
    return cell;
  });
}
