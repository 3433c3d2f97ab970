#!/usr/bin/env bash
# Guess: axios-cache-interceptor sends a GET as the caller wrote it, so a cache of the server may answer.
# Found: It adds three headers by which caches on the way and of the server are passed by.
. "$(dirname "$0")/support.sh"

use_npm axios@1.21.1 axios-cache-interceptor@1.12.3
cat > run.js <<'JS'
import { createServer } from 'node:http';
import Axios from 'axios';
import { setupCache } from 'axios-cache-interceptor';

const server = createServer(({ headers }, response) => {
  for (const name of ['cache-control', 'pragma', 'expires']) console.log(`  ${name}: ${headers[name]}`);
  response.end('[]');
});
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${server.address().port}/`;
console.log('axios');
await Axios.get(url);
console.log('with the interceptor');
await setupCache(Axios.create()).get(url);
console.log('with cacheTakeover: false');
await setupCache(Axios.create(), { cacheTakeover: false }).get(url);
server.close();
process.exit();
JS
expect node run.js <<'OUT'
axios
  cache-control: undefined
  pragma: undefined
  expires: undefined
with the interceptor
  cache-control: no-cache, no-store, must-revalidate, max-age=0
  pragma: no-cache
  expires: 0
with cacheTakeover: false
  cache-control: undefined
  pragma: undefined
  expires: undefined
OUT
