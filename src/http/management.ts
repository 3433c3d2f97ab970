import { createServer, type Server } from 'node:http';

interface ManagementParts {
  isReady: () => boolean | Promise<boolean>;
  metrics: { render(): Promise<string>; readonly contentType: string };
}

/** Creates the server for `/health/live`, `/health/ready` and `/metrics`, on a port that is not public. */
export function createManagementServer({ isReady, metrics }: ManagementParts): Server {
  return createServer(async (request, response) => {
    const [path] = (request.url ?? '').split('?');
    if (path === '/metrics') {
      const body = await metrics.render().catch(() => undefined);
      const headers = { 'Content-Type': metrics.contentType, 'Cache-Control': 'no-store' };
      response.writeHead(body === undefined ? 500 : 200, headers).end(body);
      return;
    }
    const status = path === '/health/live' ? 200 : path === '/health/ready' ? ((await isReady()) ? 200 : 503) : 404;
    const body = JSON.stringify({ status: status === 200 ? 'ok' : status === 503 ? 'unavailable' : 'not_found' });
    response.writeHead(status, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' }).end(body);
  });
}
