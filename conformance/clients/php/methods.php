<?php
// Calls the methods of PHP's class Memcached and prints what they answer, and with which codes. Two libraries that
// answer alike print the same: methods.php text|binary HOST:PORT...

[, $protocol] = $argv;
$servers = array_map(fn ($server) => explode(':', $server), array_slice($argv, 2));
error_reporting(E_ALL);
set_error_handler(function (int $level, string $text): bool {
    echo "warning: $text\n";
    return true;
});

function connect(?string $id = null): Memcached
{
    global $protocol, $servers;
    $client = new Memcached($id);
    $client->setOption(Memcached::OPT_BINARY_PROTOCOL, $protocol === 'binary');
    if (!$client->getServerList()) {
        $client->addServers(array_map(fn ($server) => [$server[0], (int) $server[1], 1], $servers));
    }
    return $client;
}

/** Calls a method and prints what it answers; large values by their hash. */
function tell(Memcached $client, string $method, mixed ...$arguments): mixed
{
    try {
        $answer = $client->$method(...$arguments);
    } catch (Throwable $error) {
        echo $method, ' throws ', get_class($error), ': ', $error->getMessage(), "\n";
        return null;
    }
    $shown = without_chance($answer);
    $text = var_export($shown, true);
    $text = strlen($text) > 3000 ? strlen($text) . ' bytes, ' . md5($text) : preg_replace('/\s+/', ' ', $text);
    $message = preg_replace('/ -> .*|^\(0x[0-9a-f]+\) /', '', $client->getResultMessage());
    echo $method, ': ', $text, '; ', $client->getResultCode(), ' ', $message, "\n";
    return $answer;
}

/** CAS values are the server's: whether there is one is the same. */
function without_chance(mixed $answer): mixed
{
    if (!is_array($answer)) {
        return $answer;
    }
    foreach ($answer as $key => $value) {
        $answer[$key] = $key === 'cas' ? ($value ? 'a cas' : 'none') : without_chance($value);
    }
    return $answer;
}

$c = connect();
$c->flush();
tell($c, 'getServerList');
tell($c, 'isPersistent');
tell($c, 'isPristine');

tell($c, 'get', 'none');
tell($c, 'set', 'a', 'value');
tell($c, 'get', 'a');
tell($c, 'add', 'a', 'again');
tell($c, 'replace', 'a', 'replaced', 100);
tell($c, 'replace', 'none', 'x');
tell($c, 'append', 'a', '>');
$c->setOption(Memcached::OPT_COMPRESSION, false);
tell($c, 'append', 'a', '>');
tell($c, 'prepend', 'a', '<');
tell($c, 'append', 'none', '>');
tell($c, 'get', 'a');
tell($c, 'touch', 'a', 100);
tell($c, 'touch', 'none', 100);
tell($c, 'delete', 'a');
tell($c, 'delete', 'a');
tell($c, 'delete', 'a', 10);

foreach (['set' => ['k', 'v'], 'add' => ['k2', 'v'], 'replace' => ['k', 'w'], 'append' => ['k', '>'],
    'prepend' => ['k', '<'], 'get' => ['k'], 'touch' => ['k', 100], 'delete' => ['k'],
    'setMulti' => [['m1' => 1, 'm2' => 2]], 'getMulti' => [['m1', 'm2', 'm3']], 'deleteMulti' => [['m1', 'm3']],
    'getDelayed' => [['m1', 'm2']]] as $method => $arguments) {
    tell($c, $method . 'ByKey', 'group', ...$arguments);
}
tell($c, 'fetchAll');

tell($c, 'setMulti', ['x1' => 'one', 'x2' => [2], 'x3' => 3.5, '4' => null], 100);
ksort_told($c, 'getMulti', ['x1', 'x2', 'x3', 'x5', '4']);
tell($c, 'getMulti', ['x3', 'x1', 'none', 'x2'], Memcached::GET_PRESERVE_ORDER);
tell($c, 'getMulti', []);
tell($c, 'get', 'x1', null, Memcached::GET_EXTENDED);

function ksort_told(Memcached $client, string $method, array $keys): void
{
    // The order of several servers' answers is chance.
    $answer = $client->$method($keys);
    ksort($answer);
    $text = preg_replace('/\s+/', ' ', var_export($answer, true));
    echo $method, ', sorted: ', $text, '; ', $client->getResultCode(), "\n";
}

tell($c, 'getDelayed', ['x1'], true);
tell($c, 'fetch');
tell($c, 'fetch');
tell($c, 'fetch');
tell($c, 'getDelayed', ['x1'], true, function (Memcached $client, array $item): void {
    echo 'called with ', $item['key'], ' ', var_export($item['value'], true), "\n";
});
tell($c, 'get', 'filled', function (Memcached $client, string $key, mixed &$value, ?int &$expiration): bool {
    echo "asked for $key\n";
    $value = 'made up';
    $expiration = 100;
    return true;
});
tell($c, 'get', 'filled');
tell($c, 'get', 'refused', fn () => false);

$cas = $c->get('x1', null, Memcached::GET_EXTENDED)['cas'];
tell($c, 'cas', $cas, 'x1', 'changed');
tell($c, 'cas', $cas, 'x1', 'changed again');
tell($c, 'cas', 1.0, 'none', 'x');
tell($c, 'casByKey', $cas, 'group', 'x1', 'x');

tell($c, 'increment', 'n');
tell($c, 'set', 'n', 10);
tell($c, 'increment', 'n');
tell($c, 'increment', 'n', 7);
tell($c, 'decrement', 'n', 100);
tell($c, 'increment', 'n', 1, 5);
tell($c, 'increment', 'initial', 1, 5, 100);
tell($c, 'decrement', 'initial2', 1, 5, 100);
tell($c, 'increment', 'n', -1);
tell($c, 'set', 'word', 'not a number');
tell($c, 'increment', 'word');
tell($c, 'incrementByKey', 'n', 'n', 1);
tell($c, 'decrementByKey', 'n', 'n', 1);

foreach (['', 'a b', str_repeat('k', 250), str_repeat('k', 251), "new\nline"] as $key) {
    tell($c, 'set', $key, 'x');
    tell($c, 'get', $key);
    tell($c, 'delete', $key);
}
foreach (['empty' => '', 'nul' => "a\0b", 'null' => null, 'true' => true, 'int' => -5, 'big' => PHP_INT_MAX,
    'float' => 0.1, 'array' => ['a' => [1, 2]], 'object' => (object) ['x' => 1],
    'long' => str_repeat('compress me ', 5000)] as $key => $value) {
    foreach ([false, true] as $compressed) {
        $c->setOption(Memcached::OPT_COMPRESSION, $compressed);
        tell($c, 'set', $key, $value);
        tell($c, 'get', $key, null, Memcached::GET_EXTENDED);
    }
}
tell($c, 'set', 'huge', random_bytes(3_000_000));
tell($c, 'get', 'int');

foreach (['KEY_a', 'key_b', '', "\0", 'z'] as $key) {
    tell($c, 'getServerByKey', $key);
}
foreach (['OPT_HASH', 'OPT_DISTRIBUTION', 'OPT_LIBKETAMA_COMPATIBLE', 'OPT_BUFFER_WRITES', 'OPT_NO_BLOCK',
    'OPT_TCP_NODELAY', 'OPT_CONNECT_TIMEOUT', 'OPT_RETRY_TIMEOUT', 'OPT_DEAD_TIMEOUT', 'OPT_SEND_TIMEOUT',
    'OPT_RECV_TIMEOUT',
    'OPT_POLL_TIMEOUT', 'OPT_CACHE_LOOKUPS', 'OPT_SERVER_FAILURE_LIMIT', 'OPT_AUTO_EJECT_HOSTS',
    'OPT_HASH_WITH_PREFIX_KEY',
    'OPT_NOREPLY', 'OPT_SORT_HOSTS', 'OPT_VERIFY_KEY', 'OPT_USE_UDP', 'OPT_NUMBER_OF_REPLICAS',
    'OPT_RANDOMIZE_REPLICA_READ', 'OPT_REMOVE_FAILED_SERVERS', 'OPT_SERVER_TIMEOUT_LIMIT', 'OPT_TCP_KEEPALIVE',
    'OPT_PREFIX_KEY', 'OPT_STORE_RETRY_COUNT', 'OPT_LIBKETAMA_HASH'] as $name) {
    $option = constant("Memcached::$name");
    foreach ([1, 3, 0] as $value) {
        $other = connect();
        echo $name, ' ';
        tell($other, 'getOption', $option);
        tell($other, 'setOption', $option, $name === 'OPT_PREFIX_KEY' ? "p$value" : $value);
        tell($other, 'getOption', $option);
    }
}
tell($c, 'setOption', 9999, 1);
tell($c, 'setOptions', [Memcached::OPT_PREFIX_KEY => 'pre:', Memcached::OPT_VERIFY_KEY => $protocol === 'text']);
tell($c, 'set', 'a', 'prefixed');
tell($c, 'getMulti', ['a']);
tell(connect(), 'get', 'pre:a');
tell($c, 'setBucket', [0, 1, 2, 0], null, 0);
tell($c, 'setBucket', [], null, 0);

$buffered = connect();
$buffered->setOption(Memcached::OPT_BUFFER_WRITES, true);
tell($buffered, 'set', 'buffered', 'x');
tell($buffered, 'flushBuffers');
tell($c, 'get', 'none');
$version = $c->getVersion();
echo 'versions: ', count($version), ' ', current($version), "\n";
$stats = $c->getStats();
ksort($stats);
foreach ($stats as $of) {
    echo 'statistics: ', implode(' ', array_keys($of)), "\n";
}
$keys = $c->getAllKeys();
echo 'getAllKeys: ', gettype($keys), ' ', $c->getResultCode(), "\n";
tell($c, 'resetServerList');
tell($c, 'get', 'a');
tell($c, 'getServerByKey', 'a');
tell($c, 'getVersion');
tell($c, 'quit');

$away = new Memcached();
$away->setOption(Memcached::OPT_BINARY_PROTOCOL, $protocol === 'binary');
tell($away, 'get', 'no servers');
$away->addServer('127.0.0.1', 1);
tell($away, 'set', 'a', 'x');
tell($away, 'get', 'a');
tell($away, 'getMulti', ['a', 'b']);
tell($away, 'setMulti', ['a' => 1]);
tell($away, 'getVersion');
tell($away, 'getLastErrorCode');
tell($away, 'getLastErrorErrno');
tell($away, 'getLastDisconnectedServer');

$persistent = connect('kept');
tell($persistent, 'isPersistent');
tell($persistent, 'isPristine');
$again = connect('kept');
tell($again, 'isPristine');
tell($again, 'getServerList');
tell($again, 'flush');
tell($again, 'get', 'x1');
