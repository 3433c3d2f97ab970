import { readFile } from 'node:fs/promises';
import autocannon from 'autocannon';

/**
 * Replaces `load.lua` if wrk is not installed: node load.js <url> <connections> <seconds>
 * <file> <pause in ms> <order file>
 */
const [url, connections, duration, file, pause, orderFile] = process.argv.slice(2);
const requests = (await readFile(file, 'utf8'))
  .trimEnd()
  .split('\n')
  .map(line => {
    const [method, path, body, ...headers] = line.split('\t');
    const pairs = headers.map(header => [
      header.slice(0, header.indexOf(': ')),
      header.slice(header.indexOf(': ') + 2),
    ]);
    return { method, path, ...(body ? { body } : {}), headers: Object.fromEntries(pairs) };
  });
const order = (await readFile(orderFile, 'utf8')).trimEnd().split('\n').map(Number);
let turn = 0;
const nextRequest = request => ({ ...request, ...requests[order[turn++ % order.length]] });

const result = await autocannon({
  url,
  connections: Number(connections),
  duration: Number(duration),
  ...(Number(pause) > 0 ? { connectionRate: 1_000 / Number(pause) } : {}),
  requests: requests.length === 1 ? requests : [{ setupRequest: nextRequest }],
});
console.log(
  JSON.stringify({
    requests: result.requests.total,
    seconds: result.duration,
    p50: result.latency.p50,
    p99: result.latency.p99,
    statusErrors: result['4xx'] + result['5xx'],
    socketErrors: result.errors,
  }),
);
