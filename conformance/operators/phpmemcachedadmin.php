<?php
// Reads a server as phpMemcachedAdmin does: phpmemcachedadmin.php sockets|memcache HOST PORT
//
// `sockets` is its reader "Server" (commands over a socket, parsed by its rules), `memcache` the one that uses PHP's
// extension memcache. Prints what its pages are made of, a name, a tab and a value each.

[, $reader, $host, $port] = $argv;
set_error_handler(function (int $_, string $message, string $file, int $line): never {
    fwrite(STDERR, "$message in line $line\n");
    exit(1);
}, E_WARNING | E_NOTICE);

$memcache = null;
if ($reader === 'memcache') {
    $memcache = new Memcache();
    $memcache->addServer($host, (int) $port);
}

// One command on a connection of its own, up to the first line that ends as a reply does.
function command(string $command): string
{
    global $host, $port;
    $handle = fsockopen($host, (int) $port, timeout: 5);
    fwrite($handle, "$command\r\n");
    $answer = '';
    do {
        $line = fgets($handle);
        $answer .= $line;
    } while ($line !== false
        && !preg_match('/(END|DELETED|OK|ERROR|SERVER_ERROR|CLIENT_ERROR|NOT_FOUND|STORED|RESET)\r\n$/', $line));
    fclose($handle);
    return $answer;
}

// `stats` and its kind: the third word of a line by the second.
function stats(string $what = ''): array
{
    global $memcache;
    if ($memcache !== null && $what === '') {
        return array_values($memcache->getExtendedStats())[0];
    }
    $stats = [];
    foreach (explode("\r\n", command(rtrim("stats $what"))) as $line) {
        $words = explode(' ', $line);
        if (isset($words[2])) {
            $stats[$words[1]] = $words[2];
        }
    }
    return $stats;
}

// The classes: what `stats slabs` tells, and with `items:` before its name what `stats items` tells.
function classes(): array
{
    global $memcache;
    $classes = [];
    if ($memcache !== null) {
        $classes = array_filter(array_values($memcache->getExtendedStats('slabs'))[0], 'is_array');
        foreach (array_values($memcache->getExtendedStats('items'))[0]['items'] as $class => $stats) {
            foreach ($stats as $name => $value) {
                $classes[$class]["items:$name"] = $value;
            }
        }
        return $classes;
    }
    foreach (stats('slabs') as $name => $value) {
        $parts = explode(':', $name);
        if (isset($parts[1])) {
            $classes[$parts[0]][$parts[1]] = $value;
        }
    }
    foreach (stats('items') as $name => $value) {
        $parts = explode(':', $name);
        $classes[$parts[1]]["items:$parts[2]"] = $value;
    }
    return $classes;
}

// The keys of a class, each with its size and the moment at which it expires.
function items(string $class): array
{
    global $memcache;
    $items = [];
    if ($memcache !== null) {
        return array_values($memcache->getExtendedStats('cachedump', (int) $class, 100000))[0];
    }
    foreach (explode("\r\n", command("stats cachedump $class 0")) as $line) {
        $words = explode(' ', $line);
        if (isset($words[1])) {
            $items[$words[1]] = [substr($words[2], 1), $words[4]];
        }
    }
    return $items;
}

function show(string $name, string|int|float $value): void
{
    echo "$name\t$value\n";
}

$stats = stats();
foreach ($stats as $name => $value) {
    show($name, $value);
}
// The extension does not ask for them.
foreach ($memcache === null ? stats('settings') : [] as $name => $value) {
    show("settings $name", $value);
}

// What the pages compute of `stats`.
$percent = fn (string $part, string $whole): string => sprintf('%.1f', $stats[$part] / $stats[$whole] * 100);
show('page get_hits_percent', $percent('get_hits', 'cmd_get'));
show('page get_misses_percent', $percent('get_misses', 'cmd_get'));
show('page bytes_percent', $percent('bytes', 'limit_maxbytes'));
foreach (['delete' => ['hits', 'misses'], 'cas' => ['hits', 'misses', 'badval'], 'incr' => ['hits', 'misses'],
    'decr' => ['hits', 'misses'], 'touch' => ['hits', 'misses']] as $command => $outcomes) {
    show("page cmd_$command", array_sum(array_map(fn ($outcome) => $stats["{$command}_$outcome"], $outcomes)));
}

// The classes and what the pages compute of them; sums, since servers have classes of their own.
$slabs = stats('slabs');
show('slabs active_slabs', $slabs['active_slabs'] > 0 ? 'some' : 'none');
show('slabs total_malloced', $slabs['total_malloced'] > 0 ? 'some' : 'none');
$sums = array_fill_keys(['get_hits', 'cmd_set', 'delete_hits', 'cas_hits', 'cas_badval', 'incr_hits', 'decr_hits',
    'items:number', 'items:evicted', 'items:evicted_nonzero', 'items:outofmemory'], 0);
$keys = [];
foreach (classes() as $id => $class) {
    foreach ($sums as $name => $sum) {
        $sums[$name] = $sum + $class[$name];
    }
    // Of each class the page shows these as they are, and what is wasted.
    foreach (['chunk_size', 'used_chunks', 'total_chunks', 'total_pages', 'items:age', 'items:evicted_time'] as $name) {
        show("class $name", is_numeric($class[$name]) ? 'a number' : $class[$name]);
    }
    $requested = $class['items:mem_requested'] ?? $class['mem_requested'];
    $wasted = $class['total_chunks'] * $class['chunk_size'] - $requested;
    show('class wasted', $wasted >= 0 ? 'no less than nothing' : $wasted);
    foreach (items((string) $id) as $key => [$bytes, $expires]) {
        $keys[$key] = $bytes . ' ' . match (true) {
            // memcached 1.6 has the moment of its start here, and before 1.4.33 nothing but that.
            $expires <= $stats['time'] => 'never expires',
            default => 'expires in ' . round(($expires - $stats['time']) / 60) . ' min',
        };
    }
}
foreach ($sums as $name => $sum) {
    show("classes $name", $sum);
}
foreach ($keys as $key => $shown) {
    show("item $key", $shown);
}
