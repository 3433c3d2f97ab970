import { createServer, type ServerResponse } from 'node:http';
import { listening } from './listening.ts';
import { fetchAnswer, fetchedAnswer, tag } from './origin.ts';

/**
 * The ceiling: what bare `node:http` can send at all. It gets each answer once from the server at `ORIGIN`, then sends those
 * bytes to whoever asks, knows no condition but one (its tag: 304), and does nothing else.
 */
function send(response: ServerResponse, body: Buffer | undefined): void {
  if (!body) {
    response.writeHead(404).end();
    return;
  }
  const headers = { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': body.length, ETag: tag };
  response.writeHead(200, headers).end(body);
}

const server = createServer((request, response) => {
  const path = request.url ?? '';
  const body = fetchedAnswer(path);
  if (request.headers['if-none-match'] === tag) response.writeHead(304, { ETag: tag }).end();
  else if (body) send(response, body);
  else void fetchAnswer(path).then(found => send(response, found));
});
listening(server);
