// A larderd with its live page, and clients that keep it busy.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Starts it; ports are those given, or ones that are free. */
export async function start(program, options = [], ports = { cache: -1, admin: 0 }) {
  const folder = mkdtempSync(join(tmpdir(), "larder-browser-"));
  const file = join(folder, "ports");
  const user = process.getuid() === 0 ? ["-u", "root"] : [];
  const args = ["-l", "127.0.0.1", "-p", ports.cache, "-t", "2", "--admin-listen",
    `127.0.0.1:${ports.admin}`, ...user, ...options];
  const child = spawn(program, args.map(String), {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, MEMCACHED_PORT_FILENAME: file },
  });
  // It must not outlive a test that fails.
  process.once("exit", () => child.kill("SIGKILL"));
  while (!existsSync(file)) {
    if (child.exitCode !== null) throw new Error("larderd does not start");
    await sleep(5);
  }
  const port = (name) => Number(readFileSync(file, "utf8").match(new RegExp(`^${name} INET: (\\d+)$`, "m"))[1]);
  const found = { cache: port("TCP"), admin: port("ADMIN") };
  rmSync(folder, { recursive: true });
  const stop = () => new Promise((done) => {
    child.once("exit", done);
    child.kill("SIGKILL");
  });
  return { ports: found, url: `http://127.0.0.1:${found.admin}/`, stop };
}

/** A port that is free now. */
export function freePort() {
  return new Promise((done) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

/** A key of a workload that a shop might have: some keys are asked for far more often than others. */
function key() {
  const rank = Math.floor(40000 ** Math.random());
  const [prefix, ttl] = [["product", 0], ["session", 1800], ["user", 0], ["price", 45], ["cart", 86400]][rank % 5];
  return [`${prefix}:${rank}`, ttl];
}

/** Reads, and stores what is missing, over a few connections, until what it returns is called. */
export function load(port, { pauseMillis = 0, connections = 4 } = {}) {
  let isStopped = false;
  const sockets = Array.from({ length: connections }, () => net.connect(port, "127.0.0.1"));
  sockets.forEach(async (socket) => {
    socket.on("error", () => {});
    const value = "v".repeat(4000);
    while (!isStopped && !socket.destroyed) {
      const asked = new Map(Array.from({ length: 50 }, key));
      const answer = await converse(socket, `get ${[...asked.keys()].join(" ")}\r\n`, "END\r\n");
      if (answer === null) return;
      const found = new Set([...answer.matchAll(/^VALUE (\S+)/gm)].map((match) => match[1]));
      const sets = [...asked].filter(([key]) => !found.has(key)).map(([key, ttl]) => {
        const bytes = key.endsWith("7") ? 200 : 1000 + (key.length * 397) % 2500;
        return `set ${key} 0 ${ttl} ${bytes} noreply\r\n${value.slice(0, bytes)}\r\n`;
      });
      socket.write(sets.join("") + (Math.random() < 0.1 ? "incr visits 1 noreply\r\ndelete cart:9 noreply\r\n" : ""));
      await sleep(pauseMillis);
    }
    socket.destroy();
  });
  return () => {
    isStopped = true;
  };
}

/** Sends, and returns what comes up to an end; null when the connection ends first. */
export function converse(socket, text, end) {
  return new Promise((done) => {
    let answer = "";
    const hear = (bytes) => {
      answer += bytes.toString("latin1");
      if (answer.endsWith(end)) finish(answer);
    };
    const leave = () => finish(null);
    const finish = (result) => {
      socket.off("data", hear).off("close", leave);
      done(result);
    };
    socket.on("data", hear).on("close", leave);
    socket.write(text);
  });
}
