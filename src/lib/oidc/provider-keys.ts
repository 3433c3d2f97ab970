import type { JWK } from 'jose';
import type { Provider } from './provider.ts';
import { type ProviderFailure, ProviderUnavailableError } from './provider-error.ts';

/** Keys are fetched again after this time. */
const maxAgeS = 10 * 60;
/** Kept keys serve for this time while the provider is away. */
const maxAwayS = 60 * 60;
/**
 * After a fetch, the next one for a key that is unknown, or after a failure, begins no sooner
 * than this. So nobody who sends tokens makes the service call a provider more often, and a
 * provider that is silent delays one sign-in a minute, while there are kept keys.
 */
const minPauseS = 60;
/** After a failure without kept keys, the next fetch begins no sooner than this. */
const minRetryS = 10;
/** Maximum fetches at a time, for all tenants, and for one. */
const maxFetches = 100;
const maxFetchesOfTenant = 5;
/** Maximum providers whose keys are kept; the one fetched least recently goes first. */
const maxKept = 5_000;

interface KeySet {
  readonly keys: readonly JWK[];
  /** Seconds since 1970, as all times here. */
  readonly fetchedAt: number;
}

interface KeptProvider {
  readonly keySet: KeySet | undefined;
  /** When the last fetch began. */
  readonly triedAt: number;
  /** The failure of the last fetch; undefined if it succeeded. */
  readonly failure: ProviderFailure | undefined;
}

interface ProviderKeysOptions {
  /** The time of the control database, in seconds since 1970. */
  readonly now: () => number;
  /** @throws {ProviderUnavailableError} */
  readonly fetch: (provider: Provider) => Promise<readonly JWK[]>;
  /** Learns of each fetch that has ended, and of its failure. */
  readonly onFetch: (provider: Provider, failure: ProviderFailure | undefined) => void;
}

/**
 * The keys of providers, as this process knows them. One fetch runs at a time for a provider,
 * and all who need it wait for it; fetches have a budget of their own, beyond which a sign-in
 * fails at once. So a provider that is silent occupies nothing that anybody else needs.
 */
export class ProviderKeys {
  readonly #options: ProviderKeysOptions;
  readonly #kept = new Map<string, KeptProvider>();
  /** The fetches that run, by provider, with their tenants. */
  readonly #running = new Map<string, { tenantGuid: string; ended: Promise<KeySet> }>();

  constructor(options: ProviderKeysOptions) {
    this.#options = options;
  }

  /**
   * Returns the keys of a provider: those of the last 10 minutes, else new ones, else those of
   * the last hour.
   * @throws {ProviderUnavailableError} when there are none
   */
  async read(provider: Provider): Promise<readonly JWK[]> {
    const { keySet, triedAt, failure } = this.#stateOf(provider);
    const now = this.#options.now();
    if (keySet && now - keySet.fetchedAt < maxAgeS) return keySet.keys;

    const usable = keySet && now - keySet.fetchedAt < maxAwayS ? keySet : undefined;
    const pauseS = usable ? minPauseS : minRetryS;
    if (failure && now - triedAt < pauseS && !this.#running.has(nameOf(provider))) {
      if (usable) return usable.keys;
      throw new ProviderUnavailableError(failure);
    }

    try {
      const fetched = await this.#fetch(provider);
      return fetched.keys;
    } catch (error) {
      if (usable) return usable.keys;
      throw error;
    }
  }

  /**
   * Returns the keys of a provider, fetched again because a token names a key that is unknown;
   * undefined if they were fetched within the last minute, or cannot be fetched now.
   */
  async readAgain(provider: Provider): Promise<readonly JWK[] | undefined> {
    const { triedAt } = this.#stateOf(provider);
    const isPausing = this.#options.now() - triedAt < minPauseS;
    if (isPausing && !this.#running.has(nameOf(provider))) return undefined;

    try {
      const fetched = await this.#fetch(provider);
      return fetched.keys;
    } catch (error) {
      if (error instanceof ProviderUnavailableError) return undefined;
      throw error;
    }
  }

  #stateOf(provider: Provider): KeptProvider {
    const nothing = { keySet: undefined, triedAt: Number.NEGATIVE_INFINITY, failure: undefined };

    return this.#kept.get(nameOf(provider)) ?? nothing;
  }

  /** Fetches the keys, or waits for the fetch that runs already. */
  async #fetch(provider: Provider): Promise<KeySet> {
    const name = nameOf(provider);
    const running = this.#running.get(name);
    if (running) return running.ended;

    const { tenantGuid } = provider;
    const ofTenant = [...this.#running.values()].filter(each => each.tenantGuid === tenantGuid);
    if (this.#running.size >= maxFetches || ofTenant.length >= maxFetchesOfTenant) {
      throw new ProviderUnavailableError('busy');
    }

    const ended = this.#fetchNow(provider).finally(() => this.#running.delete(name));
    this.#running.set(name, { tenantGuid, ended });

    return ended;
  }

  async #fetchNow(provider: Provider): Promise<KeySet> {
    const { now, fetch, onFetch } = this.#options;
    const triedAt = now();

    try {
      const keySet = { keys: await fetch(provider), fetchedAt: triedAt };
      this.#keep(provider, { keySet, triedAt, failure: undefined });
      onFetch(provider, undefined);

      return keySet;
    } catch (error) {
      const failure = error instanceof ProviderUnavailableError ? error.reason : 'no_connection';
      this.#keep(provider, { keySet: this.#stateOf(provider).keySet, triedAt, failure });
      onFetch(provider, failure);

      throw error;
    }
  }

  #keep(provider: Provider, state: KeptProvider): void {
    const name = nameOf(provider);
    this.#kept.delete(name);
    this.#kept.set(name, state);

    const [oldest] = this.#kept.keys();
    if (this.#kept.size > maxKept && oldest !== undefined) this.#kept.delete(oldest);
  }
}

function nameOf({ guid, issuer }: Provider): string {
  return `${guid} ${issuer}`;
}
