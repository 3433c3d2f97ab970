import { connect } from 'node:net';

/** What came back on one connection, and whether the service ended it. */
export interface RawAnswer {
  text: string;
  /** Of every answer on the connection, in their order. */
  statuses: number[];
  /** The service closed the connection, before we gave up waiting. */
  closed: boolean;
}

interface RawOptions {
  /** Stop waiting for an end when this has been received. */
  until?: RegExp;
  withinMs?: number;
  /** Is given the way to send more on the same connection. */
  more?: (write: (bytes: string) => void) => void;
}

/** Sends bytes that no HTTP client would, on a connection of their own, and collects what comes back until it ends. */
export function sendRaw(
  url: string,
  chunks: string | Uint8Array | (string | Uint8Array)[],
  { until, withinMs = 3_000, more }: RawOptions = {},
): Promise<RawAnswer> {
  const { hostname, port } = new URL(url);
  return new Promise(resolve => {
    const socket = connect(Number(port), hostname);
    let text = '';
    const end = (closed: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve({ text, statuses: [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(match => Number(match[1])), closed });
    };
    const timer = setTimeout(() => end(false), withinMs);
    socket.on('data', data => {
      text += data.toString('latin1');
      if (until?.test(text)) end(false);
    });
    socket.on('error', () => {}); // a reset is an end as well
    socket.on('close', () => end(true));
    for (const chunk of [chunks].flat() as (string | Uint8Array)[]) socket.write(chunk);
    more?.(bytes => socket.write(bytes));
  });
}

/** A request as it stands on the wire. `Host` and the line ends are added. */
export function rawRequest(requestLine: string, headers: string[] = [], body = ''): string {
  return [`${requestLine} HTTP/1.1`, 'Host: backoffice.test', ...headers, '', body].join('\r\n');
}
