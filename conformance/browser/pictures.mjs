// The pictures of README.md: the live page under load, and the report of a comparison.
// node pictures.mjs LARDERD CHROMIUM REPORT FOLDER

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

import { load, start } from "./larderd.mjs";

const [larderd, executablePath, report, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });

/** Of what one sees without scrolling. */
async function picture(url, name, waitSecs) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 960 } });
  await page.goto(url);
  await sleep(waitSecs * 1000);
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await page.close();
}

const server = await start(larderd, ["-m", "32"]);
const stop = load(server.ports.cache, { pauseMillis: 10 });
await picture(server.url, "live-page", 90);
stop();
await server.stop();
await picture(pathToFileURL(report).href, "comparison", 1);
await browser.close();
console.log("2 pictures");
