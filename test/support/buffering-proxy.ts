import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type ServerResponse,
  request as send,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout as pass } from 'node:timers/promises';

/**
 * A proxy of HTTP that takes the body of a request at once, and answers when it has passed the
 * body on, over one slow line for all requests.
 */
export interface BufferingProxy {
  readonly url: string;
  close(): Promise<void>;
}

export async function startBufferingProxy(
  upstream: string,
  bytesPerSecond: number,
): Promise<BufferingProxy> {
  let line = Promise.resolve();

  const passOn = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await buffer(request);
    line = line.then(() => pass((1_000 * body.length) / bytesPerSecond));
    await line;

    const { method, url = '', headers } = request;
    const passed = send(new URL(url, upstream), { method, headers });
    passed.end(body);
    const [answer] = (await once(passed, 'response')) as [IncomingMessage];

    response.writeHead(answer.statusCode ?? 0, answer.headers);
    answer.pipe(response);
  };

  const listener = createServer((request, response) => {
    // The client has closed the connection.
    void passOn(request, response).catch(() => response.destroy());
  });
  await once(listener.listen(0, '127.0.0.1'), 'listening');

  return {
    url: `http://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    close: async () => {
      listener.close();
      listener.closeAllConnections();
      await once(listener, 'close');
    },
  };
}
