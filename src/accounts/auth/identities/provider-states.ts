import type { Logger } from 'pino';
import { type ControlDatabase, queryControl } from '../../../control/database.ts';
import { describeError } from '../../../lib/log/describe-error.ts';
import type { Provider } from '../../../lib/oidc/provider.ts';
import type { ProviderFailure } from '../../../lib/oidc/provider-error.ts';
import { RepeatedWrite } from '../../../lib/runtime/repeated-write.ts';

const writeIntervalMs = 1_000;

const storeStates = `
  insert into provider_states as s (provider_id, reached_at, failing_since, failure)
  select p.id, case when failure is null then now() end, case when failure is not null then now() end, failure
    from unnest($1::uuid[], $2::text[]) as noted (guid, failure)
    join identity_providers p on p.guid = noted.guid
   order by p.id
  on conflict (provider_id) do update
    set reached_at = coalesce(excluded.reached_at, s.reached_at),
        failing_since = case
          when excluded.failure is null then null
          else coalesce(s.failing_since, excluded.failing_since)
        end,
        failure = excluded.failure`;

interface ProviderStatesOptions {
  readonly control: ControlDatabase;
  readonly log: Pick<Logger, 'warn'>;
}

/**
 * Stores whether the metadata and the keys of providers can be read, each second, so that no
 * login waits for it. `doctor` names those that no process has reached for an hour.
 */
export class ProviderStates {
  readonly #options: ProviderStatesOptions;
  readonly #writes: RepeatedWrite;
  /** The outcome of the last attempt, by the guid of the provider; null: it was reached. */
  #unwritten = new Map<string, ProviderFailure | null>();

  constructor(options: ProviderStatesOptions) {
    this.#options = options;
    this.#writes = new RepeatedWrite(() => this.#write(), writeIntervalMs);
  }

  /** @param failure why it cannot be read; undefined: it was */
  readonly note = ({ guid }: Provider, failure: ProviderFailure | undefined): void => {
    this.#unwritten.set(guid, failure ?? null);
  };

  /** Stores the remaining states, and ends. */
  async stop(): Promise<void> {
    await this.#writes.stop();
  }

  async #write(): Promise<void> {
    const noted = this.#unwritten;
    if (noted.size === 0) return;

    this.#unwritten = new Map();
    try {
      const values = [[...noted.keys()], [...noted.values()]];
      await queryControl(this.#options.control, 'provider_states', storeStates, values);
    } catch (error) {
      this.#unwritten = new Map([...noted, ...this.#unwritten]);
      this.#options.log.warn(
        { event: 'provider_states_not_stored', err: describeError(error) },
        'the states of providers could not be stored: they are stored later',
      );
    }
  }
}
