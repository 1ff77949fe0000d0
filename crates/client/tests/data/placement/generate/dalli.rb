# Prints the server that dalli's ring chooses for each key of standard input (in hexadecimal).
# Arguments: SERVERS [NAMESPACE [DEAD]].
require 'dalli'

servers = ARGV[0].split(',').map { |server| Dalli::Protocol::Binary.new(server, {}) }
servers.each { |server| server.define_singleton_method(:alive?) { name != ARGV[2] } }
ring = Dalli::Ring.new(servers, {})
keys = Dalli::KeyManager.new(namespace: ARGV[1].to_s.empty? ? nil : ARGV[1])
$stdin.each_line(chomp: true) do |line|
  puts ring.server_for_key(keys.validate_key([line].pack('H*'))).name
rescue ArgumentError
  puts '-'
end
