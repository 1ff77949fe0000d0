<?php
// Speaks TLS with PHP's extension memcached over liblarder_memcached: tls.php HOST PORT tls CA_FILE

[, $host, $port, , $authority] = $argv;
$name = 'php-memcached over TLS';
require __DIR__ . '/check.php';

foreach (['', ' --BINARY-PROTOCOL'] as $more) {
    $c = new Memcached('', null, "--SERVER=$host:$port --TLS-CA=\"$authority\"$more");
    same('set', $c->set('a', ['a' => 'list']), true);
    same('get', $c->get('a'), ['a' => 'list']);
    same('setMulti', $c->setMulti(['b' => 1, 'c' => 2]), true);
    same('getMulti', $c->getMulti(['b', 'c', 'd']), ['b' => 1, 'c' => 2]);
}
$plain = new Memcached();
$plain->addServer($host, (int) $port);
same('without TLS', $plain->set('a', 'x'), false);
$stranger = new Memcached('', null, "--SERVER=$host:$port --TLS");
same('with an unknown authority', $stranger->set('a', 'x'), false);
done(phpversion('memcached'));
