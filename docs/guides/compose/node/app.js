const memjs = require('memjs');

const cache = memjs.Client.create(process.env.LARDER);
cache.set('greeting', 'hello', { expires: 60 })
  .then(() => cache.get('greeting'))
  .then(({ value }) => console.log(value.toString()))
  .finally(() => cache.close());
