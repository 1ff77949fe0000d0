#!/usr/bin/perl
# Exercises a server with Cache::Memcached: smoke.pl HOST PORT.
use strict;
use warnings;
use Cache::Memcached;

my ($host, $port) = @ARGV;
my $checks = 0;

sub same {
    my ($what, $got, $want) = @_;
    $checks++;
    $_ = defined $_ ? $_ : 'undef' for $got, $want;
    die sprintf("Cache::Memcached: %s: got %.200s, want %.200s\n", $what, $got, $want) if $got ne $want;
}

my $c = Cache::Memcached->new({ servers => ["$host:$port"], namespace => 'cache-memcached:' });

same('set', $c->set('a', 'text'), 1);
same('get', $c->get('a'), 'text');
same('get of a missing key', $c->get('missing'), undef);
$c->delete('new');
same('add', $c->add('new', 'x'), 1);
same('add of a key that is there', $c->add('new', 'y') ? 1 : 0, 0);
same('replace', $c->replace('new', 'z'), 1);
same('replace of a missing key', $c->replace('missing', 'z') ? 1 : 0, 0);
same('append', $c->append('a', '>'), 1);
same('prepend', $c->prepend('a', '<'), 1);
same('what they made', $c->get('a'), '<text>');

my %many = map { ("k$_" => "value $_") } 1 .. 100;
$c->set($_, $many{$_}) for keys %many;
my $got = $c->get_multi(keys %many, 'missing');
same('get_multi', join(',', map { "$_=$got->{$_}" } sort keys %$got),
    join(',', map { "$_=$many{$_}" } sort keys %many));

$c->set('deep', { list => [1, 2, { three => 3 }] });
same('a structure, told by its flags', $c->get('deep')->{list}[2]{three}, 3);
$c->set_compress_threshold(1000);
my $text = 'compress me ' x 100_000;
same('a compressed value', $c->set('zip', $text), 1);
same('comes back whole', $c->get('zip'), $text);
$c->set_compress_threshold(0);
my $large = join('', map { chr } 0 .. 255) x 3000;
same('a large value', $c->set('large', $large), 1);
same('comes back', $c->get('large'), $large);

$c->set('n', 10);
same('incr', $c->incr('n'), 11);
same('incr by more', $c->incr('n', 100), 111);
same('decr', $c->decr('n', 200), '0');
same('incr of a missing key', $c->incr('missing'), undef);

$c->set('ttl', 'x', 1);
sleep 2;
select undef, undef, undef, 0.2;
same('after its time', $c->get('ttl'), undef);

same('delete', $c->delete('a'), 1);
same('delete of a missing key', $c->delete('a') ? 1 : 0, 0);

# In void context the client sends noreply.
$c->set('quiet', 1);
$c->incr('quiet', 4);
$c->append('quiet', '0');
same('without replies', $c->get('quiet'), '50');
$c->delete('quiet');
same('delete without a reply', $c->get('quiet'), undef);

my $stats = $c->stats(['misc']);
same('stats', $stats->{hosts}{"$host:$port"}{misc}{curr_items} > 0 ? 1 : 0, 1);
$c->disconnect_all;
print "Cache::Memcached $Cache::Memcached::VERSION: $checks checks\n";
