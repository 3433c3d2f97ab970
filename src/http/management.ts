import { createServer, type Server } from 'node:http';

/** Answers `/health/live` and `/health/ready`, on a port that the public does not reach. */
export function createManagementServer(isReady: () => boolean): Server {
  return createServer((request, response) => {
    const status =
      request.url === '/health/live' ? 200 : request.url === '/health/ready' ? (isReady() ? 200 : 503) : 404;
    const body = JSON.stringify({ status: status === 200 ? 'ok' : status === 503 ? 'unavailable' : 'not_found' });
    response.writeHead(status, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' }).end(body);
  });
}
