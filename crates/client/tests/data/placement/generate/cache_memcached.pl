# Prints the server that a client for Perl asks for each key of standard input (in hexadecimal).
# Arguments: Cache::Memcached|Cache::Memcached::Fast SERVERS [NAMESPACE [hash_namespace]].
use strict;
use warnings;
use Cache::Memcached;
use Cache::Memcached::Fast;

my @servers = map { /^(.*):(\d+)$/; $2 > 1 ? [$1, $2] : $1 } split /,/, $ARGV[1];
my %options = (servers => \@servers, namespace => $ARGV[2] // '');
$options{hash_namespace} = 1 if @ARGV > 3;
my $client = $ARGV[0]->new(\%options);
while (my $line = <STDIN>) {
    chomp $line;
    my $key = pack 'H*', $line;
    print $key =~ /^[^\x00-\x20\x7f]{1,240}\z/ ? $client->get($key) : '-', "\n";
}
