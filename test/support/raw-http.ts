import { connect } from 'node:net';

/** The bytes received on one connection, and whether the service closed it. */
export interface RawResult {
  text: string;
  /** The status of every response on the connection, in order. */
  statuses: number[];
  /**
   * True if the service closed the connection before `withinMs` had passed or `until` matched.
   */
  closed: boolean;
}

interface RawOptions {
  /** Stops waiting for the close as soon as the received text matches. */
  until?: RegExp;
  withinMs?: number;
  /** Receives a function that sends further bytes on the same connection. */
  exposeWrite?: (write: (bytes: string) => void) => void;
}

/**
 * Sends bytes that no HTTP client would send, on a new connection, and collects the response
 * bytes until it closes.
 */
export function sendRaw(
  url: string,
  chunks: string | Uint8Array | (string | Uint8Array)[],
  { until, withinMs = 30_000, exposeWrite }: RawOptions = {},
): Promise<RawResult> {
  const { hostname, port } = new URL(url);

  return new Promise(resolve => {
    const socket = connect(Number(port), hostname);
    let text = '';

    const end = (closed: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve({
        text,
        statuses: [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(match => Number(match[1])),
        closed,
      });
    };
    const timer = setTimeout(() => end(false), withinMs);

    socket.on('data', data => {
      text += data.toString('latin1');
      if (until?.test(text)) end(false);
    });
    socket.on('error', () => {}); // a reset is reported by 'close'
    socket.on('close', () => end(true));

    for (const chunk of [chunks].flat() as (string | Uint8Array)[]) socket.write(chunk);
    exposeWrite?.(bytes => socket.write(bytes));
  });
}

/** Returns a request as it is sent on the wire; adds `Host` and the line ends. */
export function rawRequest(requestLine: string, headers: string[] = [], body = ''): string {
  return [`${requestLine} HTTP/1.1`, 'Host: backoffice.test', ...headers, '', body].join('\r\n');
}
