// The live page in a browser: every state that it has, clicked through, with a screenshot of each.
// node page.mjs LARDERD CHROMIUM FOLDER

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

import { converse, freePort, load, start } from "./larderd.mjs";

const [larderd, executablePath, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const complaints = [];

/** A tab that notes errors, and whatever it asks of others. */
async function open(url, options) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    // A server that is gone, or locked, is part of the test.
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) complaints.push(message.text());
  });
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) complaints.push(`asks for ${request.url()}`);
  });
  await page.goto(url);
  return page;
}

const shot = (page, name) => page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
const text = (page, selector) => page.locator(selector).innerText();
const until = (page, is, ...args) => page.waitForFunction(is, args.length === 1 ? args[0] : args, { timeout: 30000 });

/** Texts with less contrast than WCAG 2.1 AA asks for, controls without a name, and what sticks out at the right. */
function flaws() {
  const found = [];
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = channels(colour).slice(0, 3)
      .map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((channels(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  for (const node of document.querySelectorAll("body *")) {
    const isText = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!isText || !node.checkVisibility() || node.closest("svg")) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push(`contrast of "${node.textContent.trim().slice(0, 30)}": ${contrast.toFixed(2)}`);
  }
  for (const node of document.querySelectorAll("button, input, svg[tabindex], canvas, [role=region]")) {
    const name = node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.[0]?.textContent;
    if (!name && node.checkVisibility()) found.push(`${node.tagName} has no name`);
  }
  for (const tile of document.querySelectorAll("#figures div, #figures dd, .switch button, th, .legend li")) {
    const isCut = tile.scrollWidth > tile.clientWidth + 1 && tile.clientWidth > 0;
    if (isCut && tile.checkVisibility()) found.push(`"${tile.textContent.trim()}" is cut`);
  }
  for (const box of document.querySelectorAll(".scroll")) {
    const shows = getComputedStyle(box).backgroundAttachment.includes("local");
    if (box.scrollWidth > box.clientWidth + 1 && !shows) found.push(`${box.ariaLabel} does not show that it scrolls`);
  }
  for (const heading of document.querySelectorAll("th")) {
    if (heading.textContent.trim() === "of") found.push("a column is headed “of”");
  }
  const ones = document.body.innerText.match(/(?<![\d.,])1 (?!in |ms\b)[a-z-]+s\b(?! than)/g) ?? [];
  found.push(...ones.filter((words) => !/ (was|is|has)$/.test(words)).map((words) => `"${words}"`));
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) found.push(`the page is wider than ${width}`);
  return found;
}

async function check(page, name) {
  assert.deepEqual(await page.evaluate(flaws), [], name);
  await shot(page, name);
}

/** A state as a phone, a laptop and a large screen show it, by day and by night; `also` checks more of each. */
async function everywhere(page, name, also = async () => {}) {
  const usual = page.viewportSize();
  for (const [width, height] of [[390, 844], [1280, 900], [1920, 1080]]) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      // Charts and map are drawn anew before the next frame.
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      await check(page, `${name}-${width}-${colorScheme}`);
      await also(`${name} at ${width}`);
    }
  }
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize(usual);
}

let server = await start(larderd, ["-m", "32"]);
const page = await open(server.url);

// Empty.
await until(page, () => document.body.classList.contains("is-up"));
assert.match(await text(page, "#summary"), /No requests/);
assert.equal(await page.locator("#peers").isVisible(), false);
assert.equal(await page.locator(".scope:visible").count(), 0);
assert.match(await text(page, "#empty"), new RegExp(`nc 127.0.0.1 ${server.ports.cache}`));
await sleep(3000);
await everywhere(page, "empty");

// Loaded, and quiet again.
let rest = load(server.ports.cache);
await sleep(12000);
// A few reads for each item, however long they take on this machine.
await until(page, () => document.querySelectorAll("#curve li").length === 6);
rest();
// Memory may be full, and nothing is evicted now: the two are noticed one after the other.
await until(page, () => {
  const summary = document.querySelector("#summary").textContent;
  return summary.includes("No requests") && !summary.includes("push out");
});
assert.equal(await page.locator("#empty").isVisible(), false);
await until(page, () => document.querySelectorAll("#keys li:not(.nothing)").length > 5);
assert.ok((await text(page, "#prefixes")).includes("product"));
assert.ok((await text(page, "#curve-words")).includes("memory"));
assert.match(await text(page, "#curve"), /as now: predicted[\s\S]+as now: measured/);
await everywhere(page, "loaded");

// With few reads for its items, a server does not advise on memory; with enough it does.
const young = await start(larderd, ["-m", "16"]);
const youth = await open(young.url);
const reader = net.connect(young.ports.cache, "127.0.0.1");
const names = (from, number) => Array.from({ length: number }, (_, index) => `young:${from + index}`);
const sets = names(0, 20000).map((name) => `set ${name} 0 0 100 noreply\r\n${"y".repeat(100)}\r\n`).join("");
await converse(reader, `${sets}mn\r\n`, "MN\r\n");
const readAll = async () => {
  for (let from = 0; from < 20000; from += 50) {
    await converse(reader, `get ${names(from, 50).join(" ")}\r\n`, "END\r\n");
  }
};
await readAll();
await until(youth, () => /^Too early to tell: 20,000 reads/.test(document.querySelector("#curve-words").textContent));
assert.equal(await youth.locator("#curve li").count(), 0);
await everywhere(youth, "young");
for (let times = 0; times < 3; times += 1) await readAll();
await until(youth, () => document.querySelectorAll("#curve li").length > 0);
assert.doesNotMatch(await text(youth, "#curve-words"), /Too early/);
reader.destroy();
await youth.context().close();
await young.stop();

// Under load.
rest = load(server.ports.cache, { pauseMillis: 5 });
await until(page, () =>
  /Serving [\d.,k]+ requests a second, half of them within/.test(document.querySelector("#summary").textContent));
// For curves that are worth a picture.
await sleep(9000);
assert.equal(await text(page, "#status"), "serving");
assert.ok(await page.locator("#commands tbody tr").count() >= 2);
await until(page, () => document.querySelector("#summary").textContent.includes("push out"));
await everywhere(page, "load");
for (const name of ["ratio", "requests", "latency", "leaving", "cpu", "memory", "network", "connections"]) {
  const labels = await page.locator(`#chart-${name} text`).allTextContents();
  assert.ok(labels.filter((label) => /^\d\d:\d\d/.test(label)).length > 2, `times of ${name}: ${labels}`);
  assert.match(await text(page, `#chart-${name} .legend`), /\d/, name);
}

// What can be clicked, pointed at and reached by keys.
const pressed = (group) => page.locator(`${group} [aria-pressed=true]`).innerText();
for (const name of ["15 min", "1 h", "24 h", "5 min"]) {
  await page.getByRole("button", { name, exact: true }).click();
  assert.equal(await pressed("#span"), name);
  if (name === "24 h") await shot(page, "load-day");
}
for (const name of ["Age", "Lifetime"]) {
  await page.getByRole("button", { name, exact: true }).click();
  assert.equal(await pressed("#map-mode"), name);
  await page.locator("#map").screenshot({ path: join(folder, `map-${name.toLowerCase()}.png`) });
}
assert.match(await text(page, "#map-legend"), /Never expires/);
await page.getByRole("button", { name: "In use" }).click();
await page.locator("#map").hover({ position: { x: 5, y: 5 } });
assert.ok((await text(page, "#map-cell")).includes("queue"));
await page.locator("#map").focus();
await page.keyboard.press("ArrowRight");
assert.ok((await text(page, "#map-cell")).includes("queue"));
const chart = page.locator("#chart-requests svg");
await chart.focus();
await page.keyboard.press("ArrowLeft");
assert.match(await page.textContent("#chart-requests"), /\d\d:\d\d:\d\d/);
// The cursor is in all charts.
assert.equal(await page.locator(".chart .cursor").count(), 8);
await page.keyboard.press("Escape");
assert.equal(await page.locator(".chart .cursor").count(), 0);
await page.locator("#chart-latency svg").hover();
assert.match(await page.textContent("#chart-latency .when"), /\d\d:\d\d:\d\d/);

// Zoomed by dragging, by keys, and back.
const zoomed = () => page.locator("#zoom-reset").isVisible();
const range = async () => {
  const [from, to] = (await text(page, "#zoom-note")).match(/\d\d:\d\d:\d\d/g)
    .map((time) => time.split(":").reduce((secs, part) => secs * 60 + Number(part), 0));
  return (to - from + 86400) % 86400;
};
assert.equal(await zoomed(), false);
const box = await chart.boundingBox();
await page.mouse.move(box.x + box.width * 0.3, box.y + 50);
await page.mouse.down();
await page.mouse.move(box.x + box.width * 0.9, box.y + 60, { steps: 3 });
await shot(page, "dragged");
await page.mouse.up();
assert.equal(await zoomed(), true);
const wide = await range();
await chart.focus();
await page.keyboard.press("+");
const narrow = await range();
assert.ok(narrow >= 9 && narrow < wide, `${narrow} of ${wide} seconds`);
await shot(page, "zoomed");
await page.keyboard.press("-");
assert.ok(await range() > narrow);
await page.keyboard.press("Escape");
if (await zoomed()) await page.keyboard.press("Escape");
assert.equal(await zoomed(), false);
await page.keyboard.press("+");
assert.equal(await zoomed(), true);
await page.getByRole("button", { name: "End the zoom" }).click();
assert.equal(await zoomed(), false);
await chart.hover();
await shot(page, "pointed");
await page.keyboard.press("Tab");

// A spike does not flatten what is usual: it is cut off, and its value stands there.
const burst = net.connect(server.ports.cache, "127.0.0.1");
await converse(burst, `${`get ${"x ".repeat(90)}\r\n`.repeat(4000)}mn\r\n`, "MN\r\n");
burst.destroy();
await until(page, () => document.querySelector("#chart-requests path.cut"));
// Connections are a level, not a rate: the axis reaches them.
const idle = Array.from({ length: 50 }, () => net.connect(server.ports.cache, "127.0.0.1"));
// No cursor: the legend tells the latest.
await page.mouse.move(1, 1);
await page.locator("#chart-requests svg").blur();
await until(page, () => /open 5\d/.test(document.querySelector("#chart-connections").textContent));
assert.equal(await page.locator("#chart-connections path.cut").count(), 0);
idle.forEach((socket) => socket.destroy());
await everywhere(page, "spike");
await page.getByRole("button", { name: "whole" }).click();
assert.equal(await page.locator("path.cut").count(), 0);
await shot(page, "spike-whole");
await page.getByRole("button", { name: "cut off" }).click();

// Opened on such a device: what can be touched, and what is seen first.
const dark = await open(server.url, { colorScheme: "dark" });
const large = await open(server.url, { viewport: { width: 1920, height: 1080 } });
const handheld = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };
const phone = await open(server.url, handheld);
const tabs = [[dark, "dark"], [large, "large"], [phone, "phone"]];
for (const [tab, name] of tabs) {
  await until(tab, () => document.querySelectorAll("#keys li:not(.nothing)").length > 5);
  await check(tab, name);
  await tab.screenshot({ path: join(folder, `${name}-top.png`) });
  await tab.context().close();
}

// A key that is no text, and one that would like to be HTML.
const socket = net.connect(server.ports.cache, "127.0.0.1");
const hostile = "<img/src=x:onerror=alert(1)>";
await converse(socket, `set ${hostile} 0 0 1\r\nx\r\n`, "STORED\r\n");
for (let times = 0; times < 60; times += 1) {
  await converse(socket, `get ${Array(90).fill(hostile).join(" ")}\r\n`, "END\r\n");
}
socket.destroy();
await until(page, (hostile) => document.querySelector("#keys").textContent.includes(hostile), hostile);
assert.equal(await page.locator("#keys img").count(), 0);

// Gone, and back again under the same address.
rest();
const before = await text(page, "#places");
await server.stop();
await until(page, () => document.body.classList.contains("is-gone"));
assert.match(await text(page, "#gone"), /does not answer\. What you see is from \d\d:\d\d:\d\d\. Trying again/);
assert.match(await page.title(), /no answer/);
assert.equal((await text(page, "#places")).split("\n").length, before.split("\n").length);
await everywhere(page, "gone");
server = await start(larderd, ["-m", "32"], server.ports);
await until(page, () => document.body.classList.contains("is-up"));
await until(page, () => !document.querySelector("#empty").hidden);
assert.equal(await page.locator("#gone").isVisible(), false);
await server.stop();

// Locked.
const token = join(folder, "token");
writeFileSync(token, "correct-horse-battery\n");
server = await start(larderd, ["--admin-token-file", token]);
const locked = await open(server.url);
await until(locked, () => !document.querySelector("#token-form").hidden);
assert.equal(await locked.locator("#main").isVisible(), false);
await locked.keyboard.type("wrong-horse-battery");
await locked.keyboard.press("Enter");
await until(locked, () => !document.querySelector("#token-wrong").hidden);
await everywhere(locked, "locked");
await locked.fill("#token", "correct-horse-battery");
await locked.getByRole("button", { name: "Show the page" }).click();
await until(locked, () => document.body.classList.contains("is-up"));
assert.equal(await locked.locator("#token-form").isVisible(), false);
await server.stop();

// Namespaces, and a store behind them: three sessions and two others are kept, and one store is refused.
const namespaces = join(folder, "namespaces.toml");
const kept = mkdtempSync(join(tmpdir(), "larder-browser-store-"));
writeFileSync(namespaces,
  '[namespace."session:"]\nmemory = "8m"\ndisk = "16m"\nkeep = "store"\n[namespace."fixed:"]\nread_only = true\n');
server = await start(larderd, ["-m", "32", "--store", kept, "--keep", "store", "--namespaces", namespaces]);
const writer = net.connect(server.ports.cache, "127.0.0.1");
const stored = ["session:1", "session:2", "session:3", "a", "b"].map((name) => `set ${name} 0 0 1\r\nx\r\n`);
const answers = await converse(writer, `${stored.join("")}set fixed:1 0 0 1\r\nx\r\nget session:1 session:9\r\nmn\r\n`,
  "MN\r\n");
assert.match(answers, /^(STORED\r\n){5}SERVER_ERROR namespace is read-only\r\nVALUE session:1/);
const keeping = await open(server.url);
// Prefix, keep, items, (memory, disk), hit ratio, reads, stores, evicted, refused.
const cells = () => [...document.querySelectorAll("#namespace-list tbody tr")]
  .map((row) => [...row.cells].map((cell) => cell.innerText.trim()));
await until(keeping, () => document.querySelectorAll("#namespace-list tbody tr").length === 3);
const table = Object.fromEntries((await keeping.evaluate(cells)).map(([name, ...rest]) => [name, rest]));
const figures = (name) => [0, 1, 4, 5, 6, 7, 8].map((at) => table[name][at]);
assert.deepEqual(figures("<null>").slice(0, 2).concat(figures("<null>").slice(3)), ["store", "2", "0", "2", "0", "0"]);
assert.deepEqual(figures("session:"), ["store", "3", "50.0 %", "2", "3", "0", "0"]);
assert.equal(figures("fixed:").at(-1), "1");
assert.match(table["session:"][2], /^[\d.]+ .?i?B of 8 MiB$/);
assert.match(table["session:"][3], /^\d+ B of 16 MiB$/);
assert.equal(table["<null>"][3].includes("of"), false);
for (const heading of ["Memory map of the default namespace", "Would more memory help? In the default namespace"]) {
  assert.ok(await keeping.getByRole("heading", { name: heading }).isVisible(), heading);
}
await until(keeping, () =>
  /^5 items are on disk, and 5 of them in memory/.test(document.querySelector("#store-words").textContent));
assert.equal(await keeping.locator("#store-places li").count(), 4);
assert.match(await text(keeping, "#store-disk"), /The file system has [\d.]+ [GTM]iB left/);
assert.match(await text(keeping, "#store-times"), /Batch written and durable\s+[1-5]\s/);
await everywhere(keeping, "store", async (where) => {
  const beyond = await keeping.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(beyond <= 0, `${where}: ${beyond} pixels stick out`);
  const cut = await keeping.locator("#namespace-list").evaluate((table) =>
    table.scrollWidth - table.parentElement.clientWidth);
  assert.ok(cut <= 1, `${where}: ${cut} pixels of the table of namespaces are cut`);
});
writer.destroy();
await keeping.context().close();
await server.stop();
rmSync(kept, { recursive: true });

// Two sites, and one that never was there; then one goes.
const [token1, listens] = [join(folder, "sites-token"), [await freePort(), await freePort(), await freePort()]];
writeFileSync(token1, "all-sites-know-this-token\n", { mode: 0o600 });
const places = [1, 2].map(() => mkdtempSync(join(tmpdir(), "larder-browser-site-")));
const siteOptions = (number) => ["-m", "32", "--store", places[number - 1], "--keep", "store", "--site", number,
  "--replication-listen", `127.0.0.1:${listens[number - 1]}`, "--replication-token-file", token1,
  ...[1, 2, 3].filter((other) => other !== number).flatMap((other) => ["--peer", `127.0.0.1:${listens[other - 1]}`])];
const second = await start(larderd, siteOptions(2));
const adminSocket = join(folder, "admin-socket");
server = await start(larderd, [...siteOptions(1), "--admin-listen", adminSocket]);
const sites = await open(server.url);
await until(sites, () => /site 2\s[\s\S]*connected/.test(document.querySelector("#site-list").innerText)
  && document.querySelectorAll("#site-list tbody tr").length === 2);
assert.match(await text(sites, "#sites-words"), /This is site 1; it knows 2 other sites\. 1 of them needs a look\./);
assert.match(await text(sites, "#site-list"), /not known yet[\s\S]*not connected: Connection refused/);
// By its Unix socket, which needs no token.
const read = await new Promise((done, fail) => http.request({ socketPath: adminSocket, method: "POST",
  path: "/api/read-only?state=on" }, done).on("error", fail).end());
assert.equal(read.statusCode, 200);
await until(sites, () => document.querySelector("#summary").textContent.includes("read-only for maintenance"));
await everywhere(sites, "sites", async (where) => {
  const beyond = await sites.locator("#site-list").evaluate((table) =>
    table.scrollWidth - table.parentElement.clientWidth);
  assert.ok(beyond <= 1, `${where}: ${beyond} pixels of the table of sites are cut`);
});
await second.stop();
await until(sites, () => /2 of them need a look/.test(document.querySelector("#sites-words").textContent));
await sites.context().close();
await server.stop();
places.forEach((place) => rmSync(place, { recursive: true }));

// Peers: one that serves, one that is down, and itself under the name that the others use.
const other = await start(larderd, ["-m", "64"]);
const self = await freePort();
const peers = `127.0.0.1:${self},127.0.0.1:${other.ports.admin},127.0.0.1:${await freePort()}`;
server = await start(larderd, ["-m", "32", "--admin-peers", peers], { cache: -1, admin: self });
const loads = [load(server.ports.cache, { pauseMillis: 20 }), load(other.ports.cache, { pauseMillis: 20 })];
const several = await open(server.url);
// Cells beside each other, or on a phone below each other.
await until(several, () =>
  /^All\s+2 of 3 answer\s+[\d.]+ %/.test(document.querySelector("#servers tfoot").innerText));
assert.equal(await several.locator("#servers tbody tr").count(), 3);
assert.match(await text(several, "#servers"), /unreachable: no connection: Connection refused/);
assert.match(await text(several, "#peers-note"), /1 of 3 servers/);
await everywhere(several, "peers", async (where) => {
  const beyond = await several.locator("#servers").evaluate((table) =>
    table.scrollWidth - table.parentElement.clientWidth);
  assert.ok(beyond <= 1, `${where}: ${beyond} pixels of the table of servers are cut`);
});
await several.getByRole("link", { name: `127.0.0.1:${other.ports.admin}` }).click();
await several.waitForURL(other.url);
await until(several, () => document.body.classList.contains("is-up"));
assert.equal(await several.locator("#peers").isVisible(), false);
// The step to the other server's page is the one request that leaves this one's.
const left = complaints.filter((complaint) => !complaint.startsWith(`asks for ${other.url}`));
complaints.splice(0, complaints.length, ...left);
await several.context().close();
loads.forEach((stop) => stop());
await other.stop();
await server.stop();

assert.deepEqual(complaints, []);
await browser.close();
console.log(`the live page: ${folder}`);
process.exit(0);
