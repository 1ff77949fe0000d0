<?php
// Prints the server that PHP's memcache asks for each key of standard input (in hexadecimal).
// Arguments: SERVERS HASH_STRATEGY HASH_FUNCTION.
ini_set('memcache.hash_strategy', $argv[2]);
ini_set('memcache.hash_function', $argv[3]);
$client = new Memcache();
foreach (explode(',', $argv[1]) as $server) {
    preg_match('/^(.*?)(?::(\d+))?:(\d+)$/', $server, $parts);
    $host = $parts[1][0] === '/' ? "unix://$parts[1]" : $parts[1];
    $client->addServer($host, (int) $parts[2], true, (int) $parts[3]);
}
while (($line = fgets(STDIN)) !== false) {
    $key = hex2bin(trim($line));
    echo preg_match('/^[^\x00-\x20\x7f]{1,250}\z/', $key) ? $client->get($key) : '-', "\n";
}
