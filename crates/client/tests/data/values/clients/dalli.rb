# dalli: `ruby dalli.rb write|read PORT`. See ../README.md.

require 'dalli'
require 'zlib'

action, port = ARGV
address = "127.0.0.1:#{port}"

def hex(bytes) = bytes.unpack1('H*')

def marshalled(value)
  bytes = Marshal.dump(value)
  told = bytes.bytesize <= 100 ? hex(bytes) : format('@crc %d %08x', bytes.bytesize, Zlib.crc32(bytes))
  "serialized ruby #{told}"
end

def raw(value) = "bytes #{hex(value)}".strip

client = Dalli::Client.new(address)

if action == 'read'
  $stdin.each_line(chomp: true) do |name|
    value = client.get(name)
    # A string does not tell whether Marshal made it; the names of the others do.
    is_raw = value.is_a?(String) && name.start_with?('raw')
    puts "#{name}\t#{is_raw ? raw(value) : marshalled(value)}"
  end
  exit
end

puts "# dalli #{Dalli::VERSION}, Ruby #{RUBY_VERSION}"

store = lambda do |name, value, described = nil, **options|
  client.set(name, value, 0, options) or abort "#{name} is not stored"
  puts "#{name}\t#{described || (options[:raw] ? raw(value.to_s) : marshalled(value))}"
end

lines = (0...400).map { |i| "line #{i}\n" }.join
{ 'string' => 'grüße', 'integer' => 42, 'float' => 1.5, 'true' => true, 'nil' => nil,
  'hash' => { 'a' => 1, b: [nil, true] } }.each { |name, value| store.call(name, value) }
store.call('raw-empty', '', raw: true)
store.call('raw', 'abc', raw: true)
store.call('raw-binary', "\x00\xff\x80\r\n".b, raw: true)
store.call('raw-integer', 42, raw: true)
store.call('raw-lines-zlib', lines * 2, 'bytes @lines 400 2', raw: true)
store.call('rows-zlib', ['a row'] * 3000)
store.call('raw-short', 'too short to compress', raw: true)
