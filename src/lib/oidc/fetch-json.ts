import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import https from 'node:https';
import type { TrustedProvider } from '../config/trusted-providers.ts';
import { asError, codeOf, isObject } from '../narrow.ts';
import { type GuardOptions, guardedLookup, trustedLookup } from '../outgoing/guarded-lookup.ts';
import { isTrustedOrigin, refusedFetch } from './issuer.ts';
import { type ProviderFailure, ProviderUnavailableError } from './provider-error.ts';

/** Maximum bytes of a description, and of the keys. */
const maxBytes = 64 * 1024;

/** The guard of the requests to providers: the exceptions that the operator allows. */
export interface FetchGuard extends GuardOptions {
  readonly trusted: readonly TrustedProvider[];
}

/** The URL that is fetched, and the tenant, whose exceptions count. */
interface FetchTarget {
  readonly url: string;
  readonly tenantGuid: string;
}

/**
 * Fetches a JSON object from a provider, over https. Follows no redirect, uses no proxy, and
 * keeps no connection.
 * @param signal ends the wait, also that for the rest of the body
 * @throws {ProviderUnavailableError} also for another status than 200
 */
export async function fetchJson(
  { url, tenantGuid }: FetchTarget,
  guard: FetchGuard,
  signal: AbortSignal,
): Promise<Record<string, unknown>> {
  const { trusted } = guard;
  if (refusedFetch(url, tenantGuid, trusted) !== undefined) {
    throw new ProviderUnavailableError('refused_address');
  }

  const isException = isTrustedOrigin(url, tenantGuid, trusted);
  const lookup = isException ? trustedLookup(guard) : guardedLookup(guard);
  const text = await readText(url, { lookup, signal }).catch((error: unknown) => {
    throw error instanceof ProviderUnavailableError
      ? error
      : new ProviderUnavailableError(signal.aborted ? 'timeout' : failureOf(error), error);
  });

  return parseObject(text);
}

type TextOptions = Pick<https.RequestOptions, 'lookup'> & { readonly signal: AbortSignal };

async function readText(url: string, { lookup, signal }: TextOptions): Promise<string> {
  const sent = https.get(url, {
    agent: false,
    lookup,
    signal,
    headers: { Accept: 'application/json' },
  });
  // The listener stays after the response, when nothing waits for the request.
  sent.on('error', () => {});

  try {
    // After a 101, Node emits neither a response nor an error: only the signal ends the wait.
    const emitted: IncomingMessage[] = await once(sent, 'response', { signal });
    const response = emitted[0]!;
    const { statusCode = 0 } = response;
    if (statusCode >= 300 && statusCode < 400) throw new ProviderUnavailableError('redirect');
    if (statusCode !== 200) throw new ProviderUnavailableError('status');

    return await readAtMost(response, signal);
  } finally {
    sent.destroy();
  }
}

/** @throws {ProviderUnavailableError} for a body of more bytes than are read */
async function readAtMost(body: IncomingMessage, signal: AbortSignal): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;

  for await (const read of body) {
    signal.throwIfAborted();
    const chunk: Buffer = read;
    length += chunk.length;
    if (length > maxBytes) throw new ProviderUnavailableError('too_large');
    chunks.push(chunk);
  }

  return Buffer.concat(chunks).toString();
}

function parseObject(text: string): Record<string, unknown> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    // The text is somebody's page: it goes nowhere.
  }
  if (!isObject(parsed)) throw new ProviderUnavailableError('not_json');

  return parsed;
}

const errorCodeOfTls = /^(ERR_TLS|ERR_SSL|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO|EPROTO)/;

function failureOf(error: unknown): ProviderFailure {
  const { name } = asError(error);
  const code = codeOf(error) ?? '';
  if (code === 'REFUSED_ADDRESS') return 'refused_address';
  if (/TIMEOUT/.test(code) || name === 'TimeoutError') return 'timeout';

  return errorCodeOfTls.test(code) ? 'tls' : 'no_connection';
}
