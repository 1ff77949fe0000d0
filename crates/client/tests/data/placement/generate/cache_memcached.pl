# Prints the server that Cache::Memcached asks for each key of standard input (in hexadecimal).
# Arguments: SERVERS [NAMESPACE].
use strict;
use warnings;
use Cache::Memcached;

my @servers = map { /^(.*):(\d+)$/; $2 > 1 ? [$1, $2] : $1 } split /,/, $ARGV[0];
my $client = Cache::Memcached->new({servers => \@servers, namespace => $ARGV[1] // ''});
while (my $line = <STDIN>) {
    chomp $line;
    my $key = pack 'H*', $line;
    print $key =~ /^[^\x00-\x20\x7f]{1,240}\z/ ? $client->get($key) : '-', "\n";
}
