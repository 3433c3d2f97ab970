import type { LookupAddress } from 'node:dns';
import { lookup, Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import http, { type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { LookupFunction } from 'node:net';
import type { TrustedReceiver } from '../../lib/config/trusted-receivers.ts';
import { asError, codeOf } from '../../lib/narrow.ts';
import { isPublicAddress, isTrusted, receiversOf, refusedUrl } from './webhook-target.ts';

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

type Resolve = (name: string) => Promise<LookupAddress[]>;

interface SenderOptions {
  trusted: readonly TrustedReceiver[];
  /** Resolves a name to all its addresses; for tests. */
  resolve?: Resolve;
  /** True for an address that tenants may choose; for tests, which have no public one. */
  isAllowed?: (address: string) => boolean;
  timeoutMs?: number;
  /** Certificates that count as issued by an authority; for tests. */
  ca?: string;
}

/** An idle connection is closed after this time. */
const idleMs = 5_000;
const maxReadBytes = 64 * 1024;
const maxKeptBytes = 1024;
const errorCodeOfTls = /^(ERR_TLS|ERR_SSL|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO|EPROTO)/;

/** The name of a receiver leads to an address that nothing is sent to. */
class RefusedAddressError extends Error {
  readonly code = 'REFUSED_ADDRESS';
}

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
  isAllowed = isPublicAddress,
  timeoutMs = 10_000,
  ca,
}: SenderOptions): WebhookSender {
  const agentsOf = (lookup: LookupFunction) => {
    const options = { keepAlive: true, timeout: idleMs, lookup };
    return { http: new http.Agent(options), https: new https.Agent({ ...options, ca }) };
  };

  const checked = agentsOf(lookupOf(resolve ?? resolvePublic, isAllowed));
  const unchecked = agentsOf(lookupOf(resolve ?? resolveTrusted, () => true));

  const request = async (
    { url, headers, body, tenantGuid }: TenantRequest,
    signal: AbortSignal,
  ) => {
    const receivers = receiversOf(trusted, tenantGuid);
    if (refusedUrl(url, receivers) !== undefined) throw new RefusedAddressError();

    const target = new URL(url);
    const isException = isTrusted(url, receivers);
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
 * Asks only the name servers, and occupies no thread: the threads of the process, on which
 * `lookup` waits, also hash passwords, and a tenant chooses the name.
 */
async function resolvePublic(name: string): Promise<LookupAddress[]> {
  const found = await Promise.allSettled([dns.resolve4(name), dns.resolve6(name)]);
  const addresses = found.flatMap((each, index) =>
    each.status === 'fulfilled'
      ? each.value.map(address => ({ address, family: index === 0 ? 4 : 6 }))
      : [],
  );
  if (addresses.length === 0) throw new Error(`${name} has no address`);
  return addresses;
}

const dns = new Resolver({ timeout: 2_000, tries: 2 });
const resolveTrusted: Resolve = name => lookup(name, { all: true, order: 'verbatim' });

/** @param mayUse returns false for a forbidden address; then nothing is sent to the name */
function lookupOf(resolve: Resolve, mayUse: (address: string) => boolean): LookupFunction {
  return (name, { all, family }, callback) => {
    const found = resolve(name).then(addresses => {
      const usable = addresses.filter(each => !family || each.family === family);
      if (usable.length === 0 || !addresses.every(({ address }) => mayUse(address))) {
        throw new RefusedAddressError();
      }
      return usable;
    });
    found.then(
      addresses =>
        all
          ? callback(null, addresses)
          : callback(null, addresses[0]!.address, addresses[0]!.family),
      // A tenant must not learn which names the network of the service has.
      () => callback(new RefusedAddressError(), []),
    );
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
