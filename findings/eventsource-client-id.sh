#!/usr/bin/env bash
# Guess: an `id` that comes without data is the place to which eventsource-client returns, as WHATWG HTML §9.2.6 sets it.
# Found: It sends none, and the stream begins anew.
. "$(dirname "$0")/support.sh"

use_npm eventsource-client@1.2.0 eventsource@5.1.5
cat > run.js <<'JS'
import { createServer } from 'node:http';
import { EventSource } from 'eventsource';
import { createEventSource } from 'eventsource-client';

for (const [name, open] of [
  ['eventsource', url => new EventSource(url)],
  ['eventsource-client', url => createEventSource(url)],
]) {
  const seen = [];
  const server = createServer((request, response) => {
    seen.push(request.headers['last-event-id']);
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.end('retry: 10\nid: 7\n\n');
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  const source = open(`http://127.0.0.1:${server.address().port}/`);
  while (seen.length < 2) await new Promise(resolve => setTimeout(resolve, 20));
  source.close();
  server.close();
  console.log(`${name}: Last-Event-ID of the second connection is ${seen[1]}`);
}
process.exit();
JS
expect node run.js <<'OUT'
eventsource: Last-Event-ID of the second connection is 7
eventsource-client: Last-Event-ID of the second connection is undefined
OUT
