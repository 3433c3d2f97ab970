import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { refuseSignature, type S3Login, type SignedRequest } from './s3-signature.ts';
import { refused, type S3Response, S3Store } from './s3-store.ts';

/** The act of a sick store on a request, in place of its response. */
export type S3Fault =
  | {
      readonly kind:
        | 'silent'
        | 'no answer'
        | 'silent in the body'
        | 'cut in the body'
        | 'error in the document';
    }
  | { readonly kind: 'slow'; readonly pieces: number; readonly pauseMs: number }
  | { readonly kind: 'status'; readonly status: number; readonly code: string }
  | { readonly kind: 'redirect'; readonly status: number; readonly location: string };

/**
 * A store with the protocol of S3, and one bucket. It checks every request as Amazon's does.
 */
export interface S3Server {
  /** Settings for a target in the bucket, with a temporary login. */
  readonly environment: Readonly<Record<string, string>>;
  readonly store: S3Store;
  /** Everything that arrived, as `PUT /bucket/key?query`. */
  readonly requests: string[];
  /** The time by which the clock of the store is ahead. */
  clockOffsetMs: number;
  /** The logins that it accepts. */
  readonly logins: S3Login[];
  /** Changes the documents that it sends. */
  changeBody: (body: string) => string;
  /** Returns the fault of a request; undefined: it is answered as always. */
  faultOf: (request: string) => S3Fault | undefined | Promise<S3Fault | undefined>;
  close(): Promise<void>;
}

const login: S3Login = {
  accessKeyId: 'ASIAEXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
  sessionToken: 'AQoDYXdzEPT//////////wEXAMPLE+token==',
  region: 'eu-central-1',
};

/** @param maxKeys of one page of a list */
export async function startS3Server(bucket: string, maxKeys = 1_000): Promise<S3Server> {
  const store = new S3Store(maxKeys);
  const listener = createServer((request, response) => {
    // The client has closed the connection.
    void answer(request, response).catch(() => response.destroy());
  });
  // Longer than a pause between two attempts, which must not meet a closing connection.
  listener.keepAliveTimeout = 60_000;

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method = '', url = '', headers } = request;
    server.requests.push(`${method} ${url}`);
    const fault = await server.faultOf(`${method} ${url}`);
    const signed = { method, url, headers, body: await buffer(request) };

    const right = refuse(fault) ?? respond(signed);
    const isDocument = right.headers?.['content-type'] === 'application/xml';
    const changed = isDocument
      ? { ...right, body: Buffer.from(server.changeBody(right.body.toString())) }
      : right;
    await send(response, fault, changed);
  };

  const respond = (request: SignedRequest): S3Response => {
    const refusal = refuseSignature(request, server.logins, Date.now() + server.clockOffsetMs);
    if (refusal) return refused(refusal);
    if (request.method === 'PUT' && !request.headers['content-length']) {
      return refused([411, 'MissingContentLength']);
    }

    const [path = '', query = ''] = request.url.split(/\?(.*)/s);
    const [, name, ...key] = path.split('/').map(decodeURIComponent);
    if (name !== bucket) return refused([404, 'NoSuchBucket']);

    return store.respond(
      request.method,
      key.join('/'),
      new Map(new URLSearchParams(query)),
      request.body,
      request.headers,
    );
  };

  const server: S3Server = {
    environment: {},
    store,
    requests: [],
    clockOffsetMs: 0,
    logins: [login],
    faultOf: () => undefined,
    changeBody: body => body,
    close: async () => {
      listener.close();
      listener.closeAllConnections();
      await once(listener, 'close');
    },
  };

  await once(listener.listen(0, '127.0.0.1'), 'listening');

  const environment = {
    BACKUP_TARGET: `s3://${bucket}/some/prefix`,
    AWS_ENDPOINT_URL: `http://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    AWS_ACCESS_KEY_ID: login.accessKeyId,
    AWS_SECRET_ACCESS_KEY: login.secretAccessKey,
    AWS_SESSION_TOKEN: login.sessionToken ?? '',
    AWS_REGION: login.region,
  };

  return Object.assign(server, { environment });
}

async function send(
  response: ServerResponse,
  fault: S3Fault | undefined,
  right: S3Response,
): Promise<void> {
  if (fault?.kind === 'silent') return;
  if (fault?.kind === 'no answer') return void response.destroy();
  if (fault?.kind === 'redirect') {
    response
      .writeHead(fault.status, { location: fault.location })
      .end(refused([fault.status, 'Redirect']).body);
    return;
  }

  const { status, headers, body } = right;
  response.writeHead(status, { 'content-length': body.length, ...headers });
  const half = Math.floor(body.length / 2);

  if (fault?.kind === 'silent in the body') {
    response.write(body.subarray(0, half));
  } else if (fault?.kind === 'cut in the body') {
    response.write(body.subarray(0, half), () => response.destroy());
  } else if (fault?.kind === 'slow') {
    const size = Math.ceil(body.length / fault.pieces);
    for (let at = 0; at < body.length; at += size) {
      await pause(fault.pauseMs);
      response.write(body.subarray(at, at + size));
    }
    response.end();
  } else {
    response.end(body);
  }
}

/** A request that is refused changes nothing. */
function refuse(fault: S3Fault | undefined): S3Response | undefined {
  if (fault?.kind === 'status') return refused([fault.status, fault.code]);
  // S3 begins the response to the end of an upload before it knows whether it can put the parts
  // together.
  return fault?.kind === 'error in the document'
    ? { ...refused([500, 'InternalError']), status: 200 }
    : undefined;
}
