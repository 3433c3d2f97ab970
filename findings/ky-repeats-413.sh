#!/usr/bin/env bash
# Guess: ky gives a PUT up that is too large (413), as it can never succeed.
# Found: With Retry-After or RateLimit-Reset it sends the PUT three times.
. "$(dirname "$0")/support.sh"

use_npm ky@2.1.0
cat > run.js <<'JS'
import { createServer } from 'node:http';
import ky from 'ky';

for (const headers of [{}, { 'Retry-After': '1' }, { 'RateLimit-Reset': '1' }]) {
  let sent = 0;
  const server = createServer((request, response) => {
    sent++;
    request.resume().on('end', () => response.writeHead(413, headers).end());
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  await ky.put(`http://127.0.0.1:${server.address().port}/`, { body: 'too large' }).catch(error => error);
  server.close();
  console.log(`413 ${JSON.stringify(headers)}: sent ${sent} times`);
}
process.exit();
JS
expect node run.js <<'OUT'
413 {}: sent 1 times
413 {"Retry-After":"1"}: sent 3 times
413 {"RateLimit-Reset":"1"}: sent 3 times
OUT
