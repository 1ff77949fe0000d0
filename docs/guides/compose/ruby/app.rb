require 'dalli'

cache = Dalli::Client.new(ENV.fetch('LARDER'))
cache.set('greeting', 'hello', 60)
puts cache.get('greeting')
