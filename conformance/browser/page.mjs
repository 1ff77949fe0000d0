// The live page in a browser: every state that it has, clicked through, with a screenshot of each.
// node page.mjs LARDERD CHROMIUM FOLDER

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

import { converse, load, start } from "./larderd.mjs";

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
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) found.push(`the page is wider than ${width}`);
  return found;
}

async function check(page, name) {
  assert.deepEqual(await page.evaluate(flaws), [], name);
  await shot(page, name);
}

let server = await start(larderd, ["-m", "32"]);
const page = await open(server.url);

// Empty.
await until(page, () => document.body.classList.contains("is-up"));
assert.match(await text(page, "#summary"), /Nobody asks/);
assert.match(await text(page, "#empty"), new RegExp(`nc 127.0.0.1 ${server.ports.cache}`));
await sleep(3000);
await check(page, "empty");

// Loaded, and quiet again.
let rest = load(server.ports.cache);
await sleep(12000);
rest();
await until(page, () => document.querySelector("#summary").textContent.includes("Nobody asks"));
assert.equal(await page.locator("#empty").isVisible(), false);
await until(page, () => document.querySelectorAll("#keys li:not(.nothing)").length > 5);
assert.ok((await text(page, "#prefixes")).includes("product"));
await until(page, () => document.querySelectorAll("#curve li").length === 5);
assert.ok((await text(page, "#curve-words")).includes("memory"));
await check(page, "loaded");

// Under load.
rest = load(server.ports.cache, { pauseMillis: 5 });
await until(page, () =>
  /Serving [\d.,k]+ requests a second, half of them within/.test(document.querySelector("#summary").textContent));
// For curves that are worth a picture.
await sleep(9000);
assert.equal(await text(page, "#status"), "serving");
assert.ok(await page.locator("#commands tbody tr").count() >= 2);
await check(page, "load");

// What can be clicked, pointed at and reached by keys.
const pressed = (group) => page.locator(`${group} [aria-pressed=true]`).innerText();
for (const name of ["15 minutes", "day", "5 minutes"]) {
  await page.getByRole("button", { name, exact: true }).click();
  assert.equal(await pressed("#span"), name);
  if (name === "day") await shot(page, "load-day");
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
await page.keyboard.press("Escape");
await page.locator("#chart-latency svg").hover();
assert.match(await page.textContent("#chart-latency"), /\d\d:\d\d:\d\d/);
await shot(page, "pointed");
await page.keyboard.press("Tab");

// Dark, and narrow, and both.
const dark = await open(server.url, { colorScheme: "dark" });
const handheld = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 };
const phone = await open(server.url, { ...handheld, hasTouch: true, isMobile: true });
const night = await open(server.url, { ...handheld, colorScheme: "dark" });
for (const [tab, name] of [[dark, "dark"], [phone, "phone"], [night, "phone-dark"]]) {
  await until(tab, () => document.querySelectorAll("#keys li:not(.nothing)").length > 5);
  await check(tab, name);
  // As it is seen first.
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
await shot(page, "gone");
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
await check(locked, "locked");
await locked.fill("#token", "correct-horse-battery");
await locked.getByRole("button", { name: "Show the page" }).click();
await until(locked, () => document.body.classList.contains("is-up"));
assert.equal(await locked.locator("#token-form").isVisible(), false);
await server.stop();

assert.deepEqual(complaints, []);
await browser.close();
console.log(`the live page: ${folder}`);
process.exit(0);
