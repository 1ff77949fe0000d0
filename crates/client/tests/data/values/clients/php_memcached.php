<?php
// php-memcached: `php php_memcached.php write|read PORT`. See ../README.md.

require __DIR__ . '/describe.php';

$client = new Memcached();
$client->addServer('127.0.0.1', (int) $argv[2]);
$client->setOption(Memcached::OPT_COMPRESSION, true);

if ($argv[1] === 'read') {
    read_all(fn (string $name) => $client->get($name));
    exit;
}

$libmemcached = Memcached::LIBMEMCACHED_VERSION_HEX;
printf("# php-memcached %s, libmemcached %x, PHP %s\n", phpversion('memcached'), $libmemcached, PHP_VERSION);

function store(string $name, mixed $value, ?string $described = null): void
{
    global $client;
    $client->set($name, $value) or exit("$name is not stored: " . $client->getResultMessage());
    echo "$name\t", $described ?? describe($value), "\n";
}

foreach (plain_values() as $name => $value) {
    store($name, $value);
}

$array = ['a' => 1, 'b' => [true, null, 'x']];
$rows = array_fill(0, 300, 'a row');
$serializers = [
    'php' => [Memcached::SERIALIZER_PHP, fn ($value) => serialize($value)],
    'igbinary' => [Memcached::SERIALIZER_IGBINARY, fn ($value) => igbinary_serialize($value)],
    'json' => [Memcached::SERIALIZER_JSON, fn ($value) => json_encode($value)],
    'msgpack' => [Memcached::SERIALIZER_MSGPACK, fn ($value) => msgpack_pack($value)],
];
foreach ($serializers as $serializer => [$option, $serialize]) {
    $client->setOption(Memcached::OPT_SERIALIZER, $option);
    store("array-$serializer", $array, serialized($serializer, $serialize($array)));
    store("null-$serializer", null, serialized($serializer, $serialize(null)));
}
$client->setOption(Memcached::OPT_SERIALIZER, Memcached::SERIALIZER_PHP);

$compressions = ['fastlz' => Memcached::COMPRESSION_FASTLZ, 'zlib' => Memcached::COMPRESSION_ZLIB];
foreach ($compressions as $compression => $option) {
    $client->setOption(Memcached::OPT_COMPRESSION_TYPE, $option);
    store("lines-$compression", lines(400), 'bytes @lines 400');
    store("run-$compression", str_repeat('a', 3000), 'bytes @run 3000');
    store("rows-$compression", $rows, serialized('php', serialize($rows)));
}
store('random', blocks(2100, 2100), 'bytes @blocks 2100 2100');
// From 64 KiB on, FastLZ has other lengths, and matches further away than 8 KiB.
$client->setOption(Memcached::OPT_COMPRESSION_TYPE, Memcached::COMPRESSION_FASTLZ);
store('blocks-fastlz', blocks(8500, 68000), 'bytes @blocks 8500 68000');
store('run-fastlz-2', str_repeat('a', 70000), 'bytes @run 70000');
$client->setOption(Memcached::OPT_USER_FLAGS, 0x1234);
store('user-flags', 'abc');
