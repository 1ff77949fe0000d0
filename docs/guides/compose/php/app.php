<?php
$cache = new Memcached();
$cache->addServer(...explode(':', getenv('LARDER')));

$cache->set('greeting', 'hello', 60);
echo $cache->get('greeting'), "\n";
