// Exercises a server with the npm package memcached: node smoke.js HOST PORT
'use strict';
const { promisify } = require('node:util');
const { setTimeout: sleep } = require('node:timers/promises');
const { isDeepStrictEqual, inspect } = require('node:util');
const Memcached = require('memcached');

const [host, port] = process.argv.slice(2);
const client = new Memcached(`${host}:${port}`, { namespace: 'npm-memcached:', timeout: 10000, retries: 0 });
let checks = 0;

function same(what, got, want) {
  checks += 1;
  if (!isDeepStrictEqual(got, want)) {
    console.error(`memcached (npm): ${what}: got ${inspect(got).slice(0, 200)}, want ${inspect(want).slice(0, 200)}`);
    process.exit(1);
  }
}

const call = (name, ...args) => promisify(client[name]).apply(client, args);
const failure = (name, ...args) => call(name, ...args).then(() => 'no error', (error) => error.message);

async function main() {
  same('set', await call('set', 'a', 'text', 0), true);
  same('get', await call('get', 'a'), 'text');
  same('get of a missing key', await call('get', 'missing'), undefined);
  await call('del', 'new');
  same('add', await call('add', 'new', 'x', 0), true);
  same('add of a key that is there', /not stored/i.test(await failure('add', 'new', 'y', 0)), true);
  same('replace', await call('replace', 'new', 'z', 0), true);
  same('replace of a missing key', /not stored/i.test(await failure('replace', 'missing', 'z', 0)), true);
  same('append', await call('append', 'a', '>'), true);
  same('prepend', await call('prepend', 'a', '<'), true);
  same('what they made', await call('get', 'a'), '<text>');

  const many = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`many${i}`, `value ${i}`]));
  for (const [key, value] of Object.entries(many)) await call('set', key, value, 0);
  same('getMulti', { ...(await call('getMulti', [...Object.keys(many), 'missing'])) }, many);

  same('a number, told by its flags', (await call('set', 'number', 42, 0), await call('get', 'number')), 42);
  same('an object', (await call('set', 'json', { deep: [1] }, 0), await call('get', 'json')), { deep: [1] });
  const bytes = Buffer.from(Array.from({ length: 512 }, (_, i) => i % 256));
  same('bytes', (await call('set', 'bytes', bytes, 0), await call('get', 'bytes')), bytes);

  const { cas } = await call('gets', 'a');
  same('cas', await call('cas', 'a', 'new', cas, 0), true);
  same('cas of what has changed', await call('cas', 'a', 'newer', cas, 0), false);
  same('what is left', await call('get', 'a'), 'new');

  await call('set', 'n', 10, 0);
  same('incr', await call('incr', 'n', 5), 15);
  same('decr', await call('decr', 'n', 5), 10);
  same('incr of a missing key', await call('incr', 'missing', 5), false);

  await call('set', 'ttl', 'x', 1);
  await call('set', 'touched', 'x', 1);
  same('touch', await call('touch', 'touched', 100), true);
  await sleep(2100);
  same('after its time', await call('get', 'ttl'), undefined);
  same('touched in time', await call('get', 'touched'), 'x');

  const large = '0123456789\r\n'.repeat(60_000);
  same('a large value', await call('set', 'large', large, 0), true);
  same('comes back', (await call('get', 'large')) === large, true);

  same('del', await call('del', 'a'), true);
  same('del of a missing key', await call('del', 'a'), false);
  const [version] = await call('version');
  same('version', /^\d+\.\d+\.\d+/.test(version.version), true);
  const [stats] = await call('stats');
  same('stats', stats.curr_items > 0, true);
  client.end();
  console.log(`memcached (npm) ${require('memcached/package.json').version}: ${checks} checks`);
}

main().catch((error) => {
  console.error('memcached (npm):', error);
  process.exit(1);
});
