import type { FetchGuard } from './fetch-json.ts';
import { fetchKeys } from './fetch-keys.ts';
import { checkIdTokenClaims, type IdTokenClaims } from './id-token.ts';
import { checkLogoutTokenClaims, type LogoutTokenClaims } from './logout-token.ts';
import type { Provider } from './provider.ts';
import type { ProviderFailure } from './provider-error.ts';
import { ProviderKeys } from './provider-keys.ts';
import { verifySignature } from './verify-token.ts';

/** Maximum time of a fetch: the description and the keys together. */
const maxFetchMs = 5_000;

interface ProvidersOptions extends FetchGuard {
  /** The time of the control database, in seconds since 1970. */
  readonly now: () => number;
  /** Learns of each fetch that has ended, and of its failure. */
  readonly onFetch?: (provider: Provider, failure: ProviderFailure | undefined) => void;
  /** For tests of providers that are silent. */
  readonly maxFetchMs?: number;
}

/** Verifies tokens of providers, and keeps their keys. */
export class Providers {
  readonly #now: () => number;
  readonly #keys: ProviderKeys;
  readonly #stopping = new AbortController();

  constructor({
    now,
    onFetch = () => {},
    maxFetchMs: timeoutMs = maxFetchMs,
    ...guard
  }: ProvidersOptions) {
    this.#now = now;
    this.#keys = new ProviderKeys({
      now,
      onFetch,
      fetch: provider => {
        const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(timeoutMs)]);
        return fetchKeys(provider, guard, signal);
      },
    });
  }

  /**
   * Verifies an ID token: its signature, and that it was issued just now for this tenant. That
   * it is used once is for the caller to ensure, by its `hash`.
   * @throws {TokenRefusedError}
   * @throws {ProviderUnavailableError} when the keys of the provider cannot be had
   */
  async verifyIdToken(token: string, provider: Provider): Promise<IdTokenClaims> {
    const signed = await verifySignature(token, provider, this.#keys);

    return checkIdTokenClaims(token, signed, provider, this.#now());
  }

  /**
   * Verifies a logout token. That it is used once is for the caller to ensure, by its `jti`.
   * @throws {TokenRefusedError}
   * @throws {ProviderUnavailableError} when the keys of the provider cannot be had
   */
  async verifyLogoutToken(token: string, provider: Provider): Promise<LogoutTokenClaims> {
    const signed = await verifySignature(token, provider, this.#keys);

    return checkLogoutTokenClaims(signed, provider, this.#now());
  }

  /** Ends the fetches that run. */
  close(): void {
    this.#stopping.abort();
  }
}
