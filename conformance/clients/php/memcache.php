<?php
// Exercises a server with PHP's extension memcache: memcache.php text|binary HOST PORT

[, $protocol, $host, $port] = $argv;
$name = "php-memcache ($protocol)";
require __DIR__ . '/check.php';

const SERIALIZED = 1;
const COMPRESSED = 2;

ini_set('memcache.protocol', $protocol === 'binary' ? 'binary' : 'ascii');
$c = new Memcache();
$c->addServer($host, (int) $port);
$c->setCompressThreshold(0);
$p = "php-memcache:$protocol:";

same('set', $c->set($p . 'a', 'text'), true);
same('get', $c->get($p . 'a'), 'text');
same('get of a missing key', $c->get($p . 'missing'), false);
$c->delete($p . 'new');
same('add', $c->add($p . 'new', 'x'), true);
same('add of a key that is there', $c->add($p . 'new', 'y'), false);
same('replace', $c->replace($p . 'new', 'z'), true);
if ($protocol === 'text') {
    // In the binary protocol the extension takes this failure for the server's and stops talking to it.
    same('replace of a missing key', $c->replace($p . 'missing', 'z'), false);
}
same('append', $c->append($p . 'a', '>'), true);
same('prepend', $c->prepend($p . 'a', '<'), true);
same('what they made', $c->get($p . 'a'), '<text>');

$many = [];
for ($i = 0; $i < 100; $i++) {
    $many["{$p}k$i"] = "value $i";
    $c->set("{$p}k$i", "value $i");
}
$got = $c->get([...array_keys($many), $p . 'missing']);
ksort($got);
ksort($many);
same('get of many', $got, $many);

// Bit 0 says serialized, bit 1 compressed; the rest is the caller's. A server that loses them hands out garbage.
$list = array_fill(0, 1000, ['deep' => ['käse', null, 1.5]]);
$text = str_repeat('compress me ', 10_000);
foreach ([
    'plain' => ['text', 0, 0],
    'serialized' => [$list, 0, SERIALIZED],
    'compressed' => [$text, COMPRESSED, COMPRESSED],
    'both' => [$list, COMPRESSED, SERIALIZED | COMPRESSED],
] as $key => [$thing, $asked, $stored]) {
    same("set of a $key value", $c->set($p . $key, $thing, $asked), true);
    $flags = null;
    same("a $key value", $c->get($p . $key, $flags), $thing);
    same("its flags", $flags & 3, $stored);
    same("its flags, seen over text", raw_flags($host, $port, $p . $key) & 3, $stored);
}
$own = 0x10000;
$c->set($p . 'own', 'text', $own);
$flags = null;
$c->get($p . 'own', $flags);
same('a flag of one\'s own', [$flags & $own, raw_flags($host, $port, $p . 'own') & $own], [$own, $own]);

$c->set($p . 'n', 10);
same('increment', $c->increment($p . 'n', 5), 15);
same('decrement', $c->decrement($p . 'n', 20), 0);
same('increment of a missing key', $c->increment($p . 'missing'), false);

$c->set($p . 'ttl', 'x', 0, 1);
usleep(2_100_000);
same('after its time', $c->get($p . 'ttl'), false);

$large = random_bytes(768_000);
same('a large value', $c->set($p . 'large', $large), true);
same('comes back', $c->get($p . 'large') === $large, true);
same('delete', $c->delete($p . 'a'), true);
same('delete of a missing key', $c->delete($p . 'a'), false);
same('version', (bool) preg_match('/^\d+\.\d+\.\d+/', $c->getVersion()), true);
if ($protocol === 'text') {
    same('stats', $c->getStats()['curr_items'] > 0, true);
}
$c->close();

session_round_trip('memcache', "tcp://$host:$port");
done(phpversion('memcache'));
