import { createServer, type ServerResponse } from 'node:http';
import { listen } from './listen.ts';
import { etag, fetchBody, fetchedBody } from './origin.ts';

/**
 * The bare-http server: the upper bound of what `node:http` can send. It fetches each body once
 * from the server at `ORIGIN`, then sends these bytes to every client. It supports one
 * condition (`If-None-Match` with its only ETag: 304) and does nothing else.
 */
function send(response: ServerResponse, body: Buffer | undefined): void {
  if (!body) {
    response.writeHead(404).end();
    return;
  }
  const headers = {
    'Content-Type': 'application/json; charset=utf-8',
    'Content-Length': body.length,
    ETag: etag,
  };
  response.writeHead(200, headers).end(body);
}

const server = createServer((request, response) => {
  const path = request.url ?? '';
  const body = fetchedBody(path);
  if (request.headers['if-none-match'] === etag) response.writeHead(304, { ETag: etag }).end();
  else if (body) send(response, body);
  else void fetchBody(path).then(fetched => send(response, fetched));
});
listen(server);
