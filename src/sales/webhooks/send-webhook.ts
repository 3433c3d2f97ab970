import { once } from 'node:events';
import http, { type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { LookupFunction } from 'node:net';
import type { TrustedReceiver } from '../../lib/config/trusted-receivers.ts';
import { asError, codeOf } from '../../lib/narrow.ts';
import {
  type GuardOptions,
  guardedLookup,
  RefusedAddressError,
  trustedLookup,
} from '../../lib/outgoing/guarded-lookup.ts';
import { refusedUrl } from '../../lib/outgoing/refused-url.ts';
import { isTrusted, receiversOf } from './webhook-target.ts';

export const sendErrors = [
  'refused address',
  'timeout',
  'TLS',
  'no connection',
  'unsuccessful response',
  'secret',
] as const;
/** The reason why an attempt failed. It discloses nothing of the service's network. */
type SendError = (typeof sendErrors)[number];

/** The answer of the receiver. */
export interface SendResult {
  readonly retryAfterMs: number | undefined;
  /** The status of the response; null without one. */
  readonly status: number | null;
  /** The error of the attempt; null: the receiver has accepted the message. */
  readonly error: SendError | null;
  /** The beginning of the response's body; null for a receiver that the operator trusts. */
  readonly response: string | null;
  readonly durationMs: number;
}

/** The result of an attempt without a response. */
export function failedSend(error: SendError, durationMs = 0): SendResult {
  return { retryAfterMs: undefined, status: null, error, response: null, durationMs };
}

export interface WebhookSender {
  /**
   * Sends a message.
   * @returns undefined when `signal` was aborted before the receiver responded
   */
  send(message: TenantRequest, signal: AbortSignal): Promise<SendResult | undefined>;
  close(): void;
}

export interface WebhookRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A message, and the tenant that sends it. */
interface TenantRequest extends WebhookRequest {
  readonly tenantGuid: string;
}

interface SenderOptions extends GuardOptions {
  trusted: readonly TrustedReceiver[];
  timeoutMs?: number;
  /** Certificates that count as issued by an authority; for tests. */
  ca?: string;
}

/** An idle connection is closed after this time. */
const idleMs = 5_000;
const maxReadBytes = 64 * 1024;
const maxKeptBytes = 1024;
const errorCodeOfTls = /^(ERR_TLS|ERR_SSL|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO|EPROTO)/;

/**
 * Sends messages to receivers that tenants choose. A name is resolved once for each connection:
 * all of its addresses are checked, and the connection is made to one of these, with the name
 * for TLS and as `Host`. Follows no redirect, and uses no proxy.
 *
 * Connections of receivers that the operator trusts are separate, so that one is never used for
 * another purpose. Such a receiver may be a server inside the network of the service, whose
 * errors show what no tenant may see: the text of its response is dropped here, where it
 * arrives.
 */
export function createWebhookSender({
  trusted,
  resolve,
  isAllowed,
  timeoutMs = 10_000,
  ca,
}: SenderOptions): WebhookSender {
  const agentsOf = (lookup: LookupFunction) => {
    const options = { keepAlive: true, timeout: idleMs, lookup };
    return { http: new http.Agent(options), https: new https.Agent({ ...options, ca }) };
  };

  const checked = agentsOf(guardedLookup({ resolve, isAllowed }));
  const unchecked = agentsOf(trustedLookup({ resolve }));

  const request = async (
    { url, headers, body, tenantGuid }: TenantRequest,
    signal: AbortSignal,
  ) => {
    const receivers = receiversOf(trusted, tenantGuid);
    const isException = isTrusted(url, receivers);
    if (refusedUrl(url, isException) !== undefined) throw new RefusedAddressError();

    const target = new URL(url);
    const agents = isException ? unchecked : checked;
    const options = { method: 'POST', headers, signal };

    const sent =
      target.protocol === 'https:'
        ? https.request(target, { ...options, agent: agents.https })
        : http.request(target, { ...options, agent: agents.http });
    // The listener stays after the response, when nothing waits for the request.
    sent.on('error', () => {});

    // After a 101, Node emits neither a response nor an error: only the signal ends the wait.
    const emitted: IncomingMessage[] = await once(sent.end(body), 'response', { signal });
    const response = emitted[0]!;
    const text = await readBeginning(response);
    return { response, text: isException ? null : text };
  };

  return {
    async send(message, stopping) {
      const startedAt = performance.now();
      const timeout = AbortSignal.timeout(timeoutMs);
      const durationMs = (): number => Math.round(performance.now() - startedAt);

      try {
        const { response, text } = await request(message, AbortSignal.any([timeout, stopping]));
        const { statusCode: status = 0, headers } = response;
        const error = status >= 200 && status < 300 ? null : 'unsuccessful response';

        return {
          retryAfterMs: retryAfterMs(headers),
          status,
          error,
          response: text,
          durationMs: durationMs(),
        };
      } catch (error) {
        if (stopping.aborted) return undefined;
        return failedSend(timeout.aborted ? 'timeout' : errorOf(error), durationMs());
      }
    },

    close: () => {
      for (const agents of [checked, unchecked]) {
        for (const agent of Object.values(agents)) agent.destroy();
      }
    },
  };
}

/**
 * Reads at most 64 KiB, and returns the first 1 KiB. The status counts, also when the rest of a
 * body does not arrive.
 */
async function readBeginning(body: IncomingMessage): Promise<string> {
  const kept: Buffer[] = [];
  let length = 0;
  try {
    for await (const read of body) {
      const chunk: Buffer = read;
      if (length < maxKeptBytes) kept.push(chunk.subarray(0, maxKeptBytes - length));
      length += chunk.length;
      if (length > maxReadBytes) break;
    }
  } catch {
    // The response was cut off: the bytes that have arrived are kept.
  }

  // Text columns of PostgreSQL take no zero characters.
  return Buffer.concat(kept).toString().replaceAll('\0', '\uFFFD');
}

/**
 * Returns the wait that `Retry-After` asks for: seconds, or a date (RFC 9110 §10.2.3), by the
 * clock of the receiver.
 */
function retryAfterMs({
  'retry-after': after = '',
  date = '',
}: IncomingHttpHeaders): number | undefined {
  if (/^\d{1,9}$/.test(after)) return Number(after) * 1_000;
  const ms = Date.parse(after) - Date.parse(date);
  return ms > 0 ? ms : undefined;
}

function errorOf(error: unknown): SendError {
  const { name } = asError(error);
  const code = codeOf(error) ?? '';
  if (code === 'REFUSED_ADDRESS') return 'refused address';
  if (/TIMEOUT/.test(code) || name === 'TimeoutError') return 'timeout';
  return errorCodeOfTls.test(code) ? 'TLS' : 'no connection';
}
