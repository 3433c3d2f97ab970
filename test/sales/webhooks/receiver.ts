import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';
import { readWorldTemplate } from '../../support/world-template.ts';

/** A message as a receiver got it. */
export interface ReceivedMessage {
  id: string;
  path: string;
  body: { type: string; timestamp: string; data: Record<string, unknown> };
  headers: Record<string, string>;
  text: string;
}

export interface Receiver {
  /** WEBHOOK_TRUSTED_RECEIVERS for the tenants that every world has: all paths. */
  readonly trusted: string;
  /** WEBHOOK_TRUSTED_RECEIVERS for these tenants: the path, and those below it. */
  trustedBy(tenants: readonly { guid: string }[], path?: string): string;
  /** Every message, in the order of arrival. */
  readonly arrivals: readonly ReceivedMessage[];
  /**
   * Those of `arrivals` that were not sent again after a response with 2xx: a message may arrive
   * again when its sender could not store in time that it had arrived.
   */
  readonly messages: ReceivedMessage[];
  /** Those of `messages` at a path. */
  at(path: string): ReceivedMessage[];
  url(path: string): string;
  /** Sets how messages at a path are answered from now on; by default with 204. */
  respond(path: string, answer: (response: ServerResponse, message: ReceivedMessage) => void): void;
  close(): Promise<void>;
}

/** Starts a receiver on the loopback interface. */
export async function startReceiver(): Promise<Receiver> {
  const messages: ReceivedMessage[] = [];
  const arrivals: ReceivedMessage[] = [];
  const accepted = new Set<string>();
  const answers = new Map<string, (response: ServerResponse, message: ReceivedMessage) => void>();

  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const text = (await buffer(request)).toString();
    const headers = request.headers as Record<string, string>;
    const path = request.url ?? '';

    const message = {
      id: headers['webhook-id'] ?? '',
      path,
      body: JSON.parse(text),
      headers,
      text,
    };
    const identity = identityOf(message);
    arrivals.push(message);
    if (!accepted.has(identity)) messages.push(message);
    response.on('finish', () => {
      if (response.statusCode < 300) accepted.add(identity);
    });

    const answer = answers.get(path);
    if (answer) answer(response, message);
    else response.writeHead(204).end();
  };

  const server = createServer(
    (request, response) => void handle(request, response).catch(() => response.destroy()),
  );
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;

  const trustedBy = (tenants: readonly { guid: string }[], path = '/'): string =>
    tenants.map(({ guid }) => `${guid}=http://127.0.0.1:${port}${path}`).join();

  return {
    trusted: trustedBy(readWorldTemplate().tenants),
    trustedBy,
    messages,
    arrivals,
    at: path => messages.filter(message => message.path === path),
    url: path => `http://127.0.0.1:${port}${path}`,
    respond: (path, answer) => void answers.set(path, answer),
    close: async () => {
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };
}

/** Returns what a message has in common with itself when it arrives again. */
function identityOf({ path, id, body, text }: ReceivedMessage): string {
  // a gap ends when it is sent
  return JSON.stringify([path, id, body.type === 'webhook.gap' ? null : text]);
}

/**
 * Verifies a message with the reference library.
 * @throws when the signature is not right
 */
export function verify(secret: string, { text, headers }: ReceivedMessage): void {
  new Webhook(secret).verify(text, headers);
}
