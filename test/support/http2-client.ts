import { type ClientHttp2Session, connect, constants, type IncomingHttpHeaders } from 'node:http2';

/** A response on a stream of HTTP/2. */
export interface Http2Response {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** A stream of changes, and what has arrived on it. */
export interface OpenStream {
  readonly status: number;
  readonly text: () => string;
  /** Ends it alone, and leaves the connection open. */
  readonly cancel: () => void;
}

/** A response that has not ended within this time never ends. */
const maxMs = 60_000;
/**
 * Megabytes that a connection may hold. Above 10, the default, Node itself refuses streams:
 * also those parts of uploads count that a server did not want any more.
 */
const maxSessionMemory = 1_000;

/** A client that sends all of its requests in one connection, each in a stream of its own. */
export class Http2Client {
  readonly #session: ClientHttp2Session;
  /** Why the connection ended. */
  #error: unknown;

  private constructor(session: ClientHttp2Session) {
    this.#session = session;
    session.on('error', error => (this.#error = error));
  }

  /**
   * Opens a connection.
   * @param ca the certificate that the server has to show
   */
  static async connect(url: string, ca: string): Promise<Http2Client> {
    const session = connect(url, { ca, maxSessionMemory });
    const client = new Http2Client(session);

    await new Promise<void>((resolve, reject) => {
      session.once('connect', () => resolve());
      session.once('close', () => reject(client.#error ?? new Error('the connection was closed')));
    });
    if (session.alpnProtocol !== 'h2') throw new Error(`not HTTP/2: ${session.alpnProtocol}`);

    return client;
  }

  /** True until one of the two sides ends the connection. */
  get isOpen(): boolean {
    return !this.#session.closed && !this.#session.destroyed;
  }

  /**
   * Sends a request.
   * @param body is sent as it is; undefined: the request has none
   */
  send(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>> = {},
    body?: string | Uint8Array,
  ): Promise<Http2Response> {
    const stream = this.#session.request(
      { ':method': method, ':path': path, ...headers },
      { endStream: body === undefined },
    );

    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        stream.close();
        reject(new Error(`${method} ${path} has no response after ${maxMs} ms`));
      }, maxMs);

      let head: IncomingHttpHeaders | undefined;
      let text = '';
      let failure: Error | undefined;
      stream.setEncoding('utf8');
      stream.on('response', received => (head = received));
      stream.on('data', (piece: string) => (text += piece));
      stream.on('error', error => (failure = error));
      stream.once('close', () => {
        clearTimeout(timer);
        // a server that refuses a body ends its stream after the response (RFC 9113 §8.1)
        if (head && stream.readableEnded) {
          resolve({ status: Number(head[':status']), headers: head, text });
        } else {
          reject(failure ?? new Error(`${method} ${path}: reset with ${stream.rstCode}`));
        }
      });

      if (body !== undefined) stream.end(body);
    });
  }

  /** Sends a request, and leaves its response open. */
  open(path: string, headers: Readonly<Record<string, string>>): Promise<OpenStream> {
    const stream = this.#session.request({ ':path': path, ...headers });
    let text = '';
    stream.setEncoding('utf8');
    stream.on('data', (piece: string) => (text += piece));

    return new Promise((resolve, reject) => {
      stream.once('response', head => {
        resolve({
          status: Number(head[':status']),
          text: () => text,
          cancel: () => stream.close(constants.NGHTTP2_CANCEL),
        });
      });
      stream.on('error', reject);
    });
  }

  /** Begins an upload, of which the rest never comes. */
  begin(path: string, headers: Readonly<Record<string, string>>, part: Uint8Array): void {
    const stream = this.#session.request({ ':method': 'POST', ':path': path, ...headers });
    stream.on('error', () => {}); // the connection ends before it
    stream.write(part);
  }

  /** Goes away: ends the connection with all of its streams. */
  leave(): void {
    this.#session.destroy();
  }
}
