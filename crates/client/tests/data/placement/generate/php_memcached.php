<?php
// Prints the server that PHP's memcached chooses for each key of standard input (in hexadecimal).
// Arguments: SERVERS [OPTION=VALUE]..., with the names of Memcached::OPT_...; a value may be a name of Memcached.
$client = new Memcached();
foreach (array_slice($argv, 2) as $option) {
    [$name, $value] = explode('=', $option, 2);
    $number = is_numeric($value) ? (int) $value : $value;
    $value = defined("Memcached::$value") ? constant("Memcached::$value") : $number;
    $client->setOption(constant("Memcached::OPT_$name"), $value) || exit("$option is refused");
}
foreach (explode(',', $argv[1]) as $server) {
    preg_match('/^(.*?)(?::(\d+))?:(\d+)$/', $server, $parts);
    $client->addServer($parts[1], (int) $parts[2], (int) $parts[3]);
}
while (($line = fgets(STDIN)) !== false) {
    $server = $client->getServerByKey(hex2bin(trim($line)));
    $is_path = $server && $server['host'][0] === '/';
    echo $server ? $server['host'] . ($is_path ? '' : ":{$server['port']}") : '-', "\n";
}
