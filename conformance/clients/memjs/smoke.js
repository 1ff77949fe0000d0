// Exercises a server with memjs, in the binary protocol: node smoke.js HOST PORT [sasl USER PASSWORD]
'use strict';
const { setTimeout: sleep } = require('node:timers/promises');
const { isDeepStrictEqual, inspect } = require('node:util');
const memjs = require('memjs');

const [host, port, door = 'plain', username, password] = process.argv.slice(2);
const logger = { log() {} };
const connect = (options) => memjs.Client.create(`${host}:${port}`, { timeout: 10, retries: 1, logger, ...options });
const client = connect({ username, password });
const P = 'memjs:';
let checks = 0;

function same(what, got, want) {
  checks += 1;
  if (!isDeepStrictEqual(got, want)) {
    console.error(`memjs: ${what}: got ${inspect(got).slice(0, 200)}, want ${inspect(want).slice(0, 200)}`);
    process.exit(1);
  }
}

const get = async (key) => (await client.get(P + key)).value;
const text = async (key) => (await get(key))?.toString();
const failure = (promise) => promise.then(() => 'no error', (error) => error.message ?? error);

async function main() {
  same('set', await client.set(P + 'a', 'text', {}), true);
  same('get', await text('a'), 'text');
  same('get of a missing key', await get('missing'), null);
  await client.delete(P + 'new');
  same('add', await client.add(P + 'new', 'x', {}), true);
  same('add of a key that is there', await client.add(P + 'new', 'y', {}), false);
  same('replace', await client.replace(P + 'new', 'z', {}), true);
  same('replace of a missing key', await client.replace(P + 'missing', 'z', {}), false);
  same('append', await client.append(P + 'a', '>'), true);
  // Not prepend: memjs 1.3.2 sends append for it.
  same('what it made', await text('a'), 'text>');
  same('append to a missing key', /not stored/.test(await failure(client.append(P + 'missing', 'x'))), true);

  // All at once, told apart by their opaque numbers.
  const numbers = Array.from({ length: 200 }, (_, i) => i);
  const sets = await Promise.all(numbers.map((i) => client.set(`${P}k${i}`, 'v'.repeat(i), {})));
  same('pipelined sets', sets.every((stored) => stored === true), true);
  same('pipelined gets', await Promise.all(numbers.map((i) => text(`k${i}`))), numbers.map((i) => 'v'.repeat(i)));

  await client.delete(P + 'n');
  same('incr of a missing key sets it', (await client.increment(P + 'n', 5, { initial: 10 })).value, 10);
  same('incr', (await client.increment(P + 'n', 5, {})).value, 15);
  same('decr', (await client.decrement(P + 'n', 20, {})).value, 0);

  await client.set(P + 'ttl', 'x', { expires: 1 });
  await client.set(P + 'touched', 'x', { expires: 1 });
  same('touch', await client.touch(P + 'touched', 100), true);
  same('touch of a missing key', await client.touch(P + 'missing', 100), false);
  await sleep(2100);
  same('after its time', await get('ttl'), null);
  same('touched in time', await text('touched'), 'x');

  const large = Buffer.from(Array.from({ length: 256 * 3000 }, (_, i) => i % 256));
  same('a large value', await client.set(P + 'large', large, {}), true);
  same('comes back', large.equals(await get('large')), true);

  same('delete', await client.delete(P + 'a'), true);
  same('delete of a missing key', await client.delete(P + 'a'), false);
  const [stats] = await new Promise((done) => client.stats((error, server, values) => done([error ?? values])));
  same('stats', Number(stats.curr_items) > 0, true);
  client.close();

  if (door === 'sasl') {
    const wrong = connect({ username, password: `not ${password}`, timeout: 1 });
    same('a wrong password', (await failure(wrong.get(P + 'large'))).toLowerCase().includes('auth'), true);
  }
  console.log(`memjs ${require('memjs/package.json').version}, ${door}: ${checks} checks`);
}

main().catch((error) => {
  console.error('memjs:', error);
  process.exit(1);
});
