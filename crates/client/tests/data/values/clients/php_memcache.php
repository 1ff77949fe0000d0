<?php
// PECL's memcache: `php php_memcache.php write|read PORT`. See ../README.md.

require __DIR__ . '/describe.php';

$client = new Memcache();
$client->addServer('127.0.0.1', (int) $argv[2]);

if ($argv[1] === 'read') {
    read_all(fn (string $name) => $client->get($name));
    exit;
}

printf("# PECL memcache %s, PHP %s\n", phpversion('memcache'), PHP_VERSION);

function store(string $name, mixed $value, int $flags = 0, ?string $described = null): void
{
    global $client;
    $client->set($name, $value, $flags) or exit("$name is not stored");
    echo "$name\t", $described ?? describe($value), "\n";
}

foreach (plain_values() as $name => $value) {
    store($name, $value);
}
store('array', ['a' => 1, 'b' => [true, null, 'x']]);
store('null', null);

$rows = array_fill(0, 300, 'a row');
store('lines-zlib', lines(400), MEMCACHE_COMPRESSED, 'bytes @lines 400');
store('rows-zlib', $rows, MEMCACHE_COMPRESSED);
store('random-zlib', blocks(2100, 2100), MEMCACHE_COMPRESSED, 'bytes @blocks 2100 2100');
store('number-zlib', 42, MEMCACHE_COMPRESSED);
$client->setCompressThreshold(1000, 0.2);
store('lines-threshold', lines(400), 0, 'bytes @lines 400');
store('user-flags', 'abc', 0x10000);
