import { createHash } from 'node:crypto';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { AwsV4Signer } from 'aws4fetch';
import { OperatorError } from '../../../log/operator-error.ts';
import { explainRefusal } from './s3-refusal.ts';
import { TargetCalls, type TargetLimits } from './target-calls.ts';

export interface S3Login {
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | undefined;
}

interface S3Request {
  /** For messages: `read target.json`. */
  readonly call: string;
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  readonly url: string;
  readonly body?: Buffer;
  /** Statuses that are no errors although they are 400 or above. */
  readonly allowed?: readonly number[];
}

const maxRetries = 4;
/** Errors of a connection that the store, or a proxy before it, has closed. Each request may be sent twice. */
const closedConnection = ['ECONNRESET', 'EPIPE'];
/** Bytes that are passed to the socket at a time: a slow upload is not silent while they leave. */
const sliceBytes = 64 * 1024;

class Silence extends Error {}

/** Sends requests to S3, signed with their bodies (Signature Version 4). `node:http` follows no redirect. */
export class S3Requests {
  readonly #description: string;
  readonly #login: S3Login;
  readonly #limits: TargetLimits;
  readonly #calls: TargetCalls;

  constructor(description: string, login: S3Login, limits: TargetLimits) {
    this.#description = description;
    this.#login = login;
    this.#limits = limits;
    this.#calls = new TargetCalls(description, 'Check AWS_ENDPOINT_URL and the network', limits.maxSilenceMs);
  }

  /** Sends a request and returns its response with its whole body. @throws {OperatorError} unless it is a success */
  async send(request: S3Request): Promise<{ status: number; headers: http.IncomingHttpHeaders; text: string }> {
    const response = await this.open(request);
    const { statusCode: status = 0, headers } = response;
    return { status, headers, text: await text(this.chunks(request.call, response)) };
  }

  /** Sends a request and returns its response, whose body the caller reads with `chunks`. Errors as `send`. */
  async open(request: S3Request): Promise<IncomingMessage> {
    const response = await this.#tryRepeatedly(request);
    const { statusCode = 0, headers } = response;
    if ((statusCode >= 200 && statusCode < 300) || request.allowed?.includes(statusCode)) return response;
    const body = await text(this.chunks(request.call, response));
    throw explainRefusal(this.#description, statusCode, headers.location, body);
  }

  /** Reads a body. Only the time in which the store sends nothing counts, not that of a reader who is busy. */
  async *chunks(call: string, response: IncomingMessage): AsyncGenerator<Buffer> {
    const chunks = response[Symbol.asyncIterator]();
    try {
      for (;;) {
        const { done, value } = await this.#calls.wait(call, () => chunks.next());
        if (done) break;
        yield value;
      }
      this.#calls.answered();
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      const { code } = error as NodeJS.ErrnoException;
      throw new OperatorError(`${this.#description} closed the connection: ${call} (${code}). Try again`, {
        cause: error,
      });
    } finally {
      response.on('error', () => {}).destroy(); // without effect on a connection whose response is complete
    }
  }

  async #tryRepeatedly(request: S3Request): Promise<IncomingMessage> {
    for (let retry = 0; ; retry++) {
      this.#calls.begin(request.call);
      try {
        const response = await this.#try(request);
        const { statusCode = 0 } = response;
        const isRetried = statusCode === 429 || (statusCode >= 500 && statusCode !== 501);
        if (!isRetried || retry === maxRetries) return response;
        response.on('error', () => {}).destroy();
      } catch (error) {
        if (error instanceof Silence) throw this.#calls.silent(request.call);
        const { code, name } = error as NodeJS.ErrnoException;
        if (!closedConnection.includes(code ?? '') || retry === maxRetries)
          throw new OperatorError(
            `${this.#description} cannot be reached (${code ?? name}). Check BACKUP_TARGET and AWS_ENDPOINT_URL`,
            { cause: error },
          );
      }
      await pause(Math.random() * this.#limits.retryMs * 2 ** retry);
    }
  }

  /** `timeout` is that of a silent socket: while it connects, while the body leaves, and until the head arrives. */
  async #try({ method, url, body = Buffer.alloc(0) }: S3Request): Promise<IncomingMessage> {
    const hash = createHash('sha256').update(body).digest('hex');
    const { sessionToken, ...login } = this.#login;
    const signer = new AwsV4Signer({
      ...{ ...login, ...(sessionToken && { sessionToken }), service: 's3' },
      ...{ method, url, headers: { 'x-amz-content-sha256': hash } },
    });
    const signed = await signer.sign();
    const headers = {
      ...Object.fromEntries(signed.headers),
      ...(method !== 'GET' && { 'content-length': body.length }),
    };
    const { request: start } = signed.url.protocol === 'https:' ? https : http;
    return new Promise((resolve, reject) => {
      const request = start(signed.url, { method, headers, timeout: this.#limits.maxSilenceMs });
      request.on('error', reject);
      request.on('timeout', () => request.destroy(new Silence()));
      request.on('response', response => {
        request.removeAllListeners('timeout');
        resolve(response);
      });
      Readable.from(slicesOf(body)).pipe(request);
    });
  }
}

function* slicesOf(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += sliceBytes) yield bytes.subarray(at, at + sliceBytes);
}
