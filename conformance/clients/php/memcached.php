<?php
// Exercises a server with PHP's extension memcached, and so libmemcached:
// memcached.php text|binary HOST PORT [sasl USER PASSWORD]

[, $protocol, $host, $port] = $argv;
$door = $argv[4] ?? 'plain';
$name = "php-memcached ($protocol)";
require __DIR__ . '/check.php';

function connect(string $protocol, string $host, int $port, string $door, array $login): Memcached
{
    $client = new Memcached();
    $client->setOptions([
        Memcached::OPT_BINARY_PROTOCOL => $protocol === 'binary',
        Memcached::OPT_TCP_NODELAY => true,
        Memcached::OPT_PREFIX_KEY => "php-memcached:$protocol:",
    ]);
    if ($door === 'sasl') {
        $client->setSaslAuthData(...$login);
    }
    $client->addServer($host, $port);
    return $client;
}

$login = array_slice($argv, 5);
$c = connect($protocol, $host, (int) $port, $door, $login);

same('set', $c->set('a', 'text'), true);
same('get', $c->get('a'), 'text');
same('get of a missing key', $c->get('missing'), false);
same('told by its code', $c->getResultCode(), Memcached::RES_NOTFOUND);
$c->delete('new');
same('add', $c->add('new', 'x'), true);
same('add of a key that is there', $c->add('new', 'y'), false);
same('replace', $c->replace('new', 'z'), true);
same('replace of a missing key', $c->replace('missing', 'z'), false);
$c->setOption(Memcached::OPT_COMPRESSION, false);
same('append', $c->append('a', '>'), true);
same('prepend', $c->prepend('a', '<'), true);
same('what they made', $c->get('a'), '<text>');
$c->setOption(Memcached::OPT_COMPRESSION, true);

$many = [];
for ($i = 0; $i < 100; $i++) {
    $many["k$i"] = "value $i";
}
same('setMulti', $c->setMulti($many), true);
$got = $c->getMulti([...array_keys($many), 'missing'], Memcached::GET_PRESERVE_ORDER);
same('getMulti', $got, $many + ['missing' => null]);
same('deleteMulti', array_unique($c->deleteMulti(array_keys($many))), ['k0' => true]);
same('all deleted', $c->getMulti(array_keys($many)), []);

['value' => $value, 'cas' => $cas] = $c->get('a', null, Memcached::GET_EXTENDED);
same('get with cas', $value, '<text>');
same('cas', $c->cas($cas, 'a', 'new'), true);
same('cas of what has changed', $c->cas($cas, 'a', 'newer'), false);
same('told by its code', $c->getResultCode(), Memcached::RES_DATA_EXISTS);

$c->set('n', 10);
same('increment', $c->increment('n', 5), 15);
same('decrement', $c->decrement('n', 20), 0);
if ($protocol === 'binary') {
    $c->delete('n');
    same('increment of a missing key sets it', $c->increment('n', 5, 10), 10);
}

// The type of a value, how it was serialized and whether it is compressed live in the flags alone.
$list = array_map(fn ($i) => ['deep' => ["käse $i", null, 1.5]], range(1, 1000));
$things = ['string' => ['bytes' . "\r\n\0", 0], 'int' => [42, 1], 'float' => [1.5, 2], 'bool' => [true, 3]];
$stored = [];
foreach ($things as $key => [$thing, $type]) {
    $c->set($key, $thing);
    same("a value told by its flags ($key)", $c->get($key), $thing);
    $stored[$key] = $type;
}
$serializers = ['serialized' => [Memcached::SERIALIZER_PHP, 4], 'igbinary' => [Memcached::SERIALIZER_IGBINARY, 5]];
foreach ($serializers as $key => [$serializer, $type]) {
    $c->setOption(Memcached::OPT_SERIALIZER, $serializer);
    $c->set($key, ['small', 'list']);
    same("a $key value", $c->get($key), ['small', 'list']);
    $stored[$key] = $type;
    $c->set("{$key}_zip", $list);
    same("a $key and compressed value", $c->get("{$key}_zip"), $list);
    // 16: compressed; 64: with fastlz.
    $stored["{$key}_zip"] = $type | 16 | 64;
}
if ($door === 'plain') {
    foreach ($stored as $key => $flags) {
        same("flags of $key, seen over text", raw_flags($host, $port, "php-memcached:$protocol:$key"), $flags);
    }
}
$c->setOption(Memcached::OPT_USER_FLAGS, 0xABC);
$c->set('flags', 'x');
same('flags of one\'s own', $c->get('flags', null, Memcached::GET_EXTENDED)['flags'], 0xABC);
$c->setOption(Memcached::OPT_USER_FLAGS, -1);

$c->set('ttl', 'x', 1);
$c->set('touched', 'x', 1);
same('touch', $c->touch('touched', 100), true);
usleep(2_100_000);
same('after its time', $c->get('ttl'), false);
same('touched in time', $c->get('touched'), 'x');

$c->setOption(Memcached::OPT_COMPRESSION, false);
$large = random_bytes(768_000);
same('a large value', $c->set('large', $large), true);
same('comes back', $c->get('large') === $large, true);
same('one that is too large', $c->set('huge', str_repeat('x', 2 ** 21)), false);
same('the connection is still good', $c->get('a'), 'new');
same('delete', $c->delete('a'), true);
same('delete of a missing key', $c->delete('a'), false);
same('version', (bool) preg_match('/^\d+\.\d+\.\d+/', current($c->getVersion())), true);
same('stats', current($c->getStats())['curr_items'] > 0, true);
$c->quit();

if ($door === 'plain') {
    ini_set('memcached.sess_binary_protocol', $protocol === 'binary' ? '1' : '0');
    session_round_trip('memcached', "$host:$port");
} else {
    $wrong = connect($protocol, $host, (int) $port, $door, [$login[0], "not $login[1]"]);
    same('a wrong password', [$wrong->get('large'), $wrong->getResultCode()], [false, Memcached::RES_AUTH_FAILURE]);
}
done(phpversion('memcached') . ", $door");
