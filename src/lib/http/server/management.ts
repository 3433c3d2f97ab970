import { createServer, type Server } from 'node:http';

/**
 * - `stopping`: the process finishes its running requests, and ends.
 * - `control_database`: the process cannot reach the control database.
 * - `master_key`: neither of the two keys of the process is the present master key.
 * - `clock`: the clock of the process is 14 s or more away from that of the control database.
 * - `starting`: none of several workers serves yet.
 */
export type UnreadyReason = 'stopping' | 'control_database' | 'master_key' | 'clock' | 'starting';

/** The next step of the operator, where it does not follow from the reason. */
const remedies: { readonly [reason in UnreadyReason]?: string } = {
  master_key:
    'Set MASTER_KEY to the present master key. The log names it by its fingerprint: master_key_unknown.',
  clock:
    'Set the clock of the host right, and check its time synchronisation. The log says how far it is off: clock_differs.',
};

interface ManagementParts {
  /** Returns the reason why the process is not ready; undefined when it is. */
  unreadyReason(): UnreadyReason | undefined | Promise<UnreadyReason | undefined>;
  readonly metrics: { render(): Promise<string>; readonly contentType: string };
}

/**
 * Creates the server for `/health/live`, `/health/ready` and `/metrics`, on a port that is not
 * public.
 */
export function createManagementServer(parts: ManagementParts): Server {
  const { metrics } = parts;

  return createServer(async (request, response) => {
    const [path] = (request.url ?? '').split('?');

    if (path === '/metrics') {
      const body = await metrics.render().catch(() => undefined);
      const headers = { 'Content-Type': metrics.contentType, 'Cache-Control': 'no-store' };
      response.writeHead(body === undefined ? 500 : 200, headers).end(body);
      return;
    }

    const isKnown = path === '/health/live' || path === '/health/ready';
    const reason = path === '/health/ready' ? await parts.unreadyReason() : undefined;
    const status = !isKnown ? 404 : reason ? 503 : 200;
    const remedy = reason && remedies[reason];
    const body = JSON.stringify({
      status: !isKnown ? 'not_found' : reason ? 'unavailable' : 'ok',
      reason,
      remedy,
    });

    response
      .writeHead(status, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' })
      .end(body);
  });
}
