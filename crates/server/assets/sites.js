// The sites: how far this one has what the others changed, and they what this one did.

import { bytes, clock, count, duration, element, micros } from "./format.js";

/** Older than this, what was applied is no longer from a moment ago. */
const LAG_MICROS_MAX = 10_000_000;
const STANDINGS = {
  in: "",
  joining: "takes a copy",
  restored: "restored, needs a copy",
  silent: "silent, needs a copy",
};
/** Of the numbers; on a narrow screen each stands behind its own. */
const NUMBERS = ["Lag", "Behind", "Log kept", "Conflicts", "Clock"];

const $ = (id) => document.getElementById(id);

/** Shows what `/api/sites` says; null: this server is not one of several sites. */
export function showSites(report) {
  $("sites").hidden = !report;
  if (!report) return;
  const troubled = report.sites.filter((site) => trouble(site));
  const others = `${count(report.sites.length)} other site${report.sites.length === 1 ? "" : "s"}`;
  $("sites-words").textContent = !report.sites.length
    ? `This is site ${report.site}. It knows no other one.`
    : `This is site ${report.site}; it knows ${others}. ${troubled.length
      ? `${count(troubled.length)} of them need${troubled.length === 1 ? "s" : ""} a look.`
      : "All are connected, and have what there is."}`;
  $("sites-words").classList.toggle("bad", troubled.length > 0);
  const notes = [
    report.horizon_unix_secs ? `Every site that it knows has all changes up to ${clock(report.horizon_unix_secs)}.`
      : "Not all sites have been heard yet.",
    report.left_out.length ? `Not kept in the store, and not replicated: ${report.left_out.join(", ")}.` : "",
  ];
  $("sites-note").textContent = notes.filter(Boolean).join(" ");
  $("site-list").tBodies[0].replaceChildren(...report.sites.map((site) => row(site, report)));
}

function row(site, report) {
  const name = element("th", "", site.site ? `site ${site.site}` : "not known yet");
  name.scope = "row";
  const wrong = trouble(site);
  const state = element("td", wrong ? "bad" : "", element("span", "reason", wrong ?? "connected"));
  const isKnown = site.site !== 0;
  const kept = isKnown ? `${bytes(site.log_kept_bytes)} of ${bytes(report.log_kept_bytes_max)}` : "–";
  const ahead = site.ahead_micros ? `${duration(site.ahead_micros / 1e6)} ahead` : "in time";
  const texts = [micros(site.lag_micros), count(site.entries_behind), kept, count(site.conflicts),
    isKnown ? ahead : "–"];
  return element("tr", "", name, element("td", "", site.address ?? "–"), state, ...texts.map((text, column) => {
    const cell = element("td", "n", text);
    cell.dataset.heading = NUMBERS[column];
    return cell;
  }));
}

/** What is wrong with a site; null: nothing. */
function trouble(site) {
  if (site.ahead_micros) return "its clock is ahead: its changes wait";
  if (site.is_copying) return `a copy is taken: ${bytes(site.copied_bytes)} so far`;
  if (site.is_connected === false) {
    const since = site.unheard_secs ? `, not heard for ${duration(site.unheard_secs)}` : "";
    return `not connected${since}${site.last_error ? `: ${site.last_error}` : ""}`;
  }
  if (STANDINGS[site.standing]) return STANDINGS[site.standing];
  if (site.is_connected === null) {
    return "pulls from this site, which is not told to pull from it (--peer, --peers-file)";
  }
  if (!site.is_pulling) return "does not pull from this site";
  return site.lag_micros > LAG_MICROS_MAX ? "late" : null;
}
