import type { Logger } from 'pino';
import { type ControlDatabase, transactControl } from '../../control/database.ts';
import { describeError } from '../../lib/log/describe-error.ts';
import { isOutcomeUnknown } from '../../lib/problems.ts';
import { RepeatedWrite } from '../../lib/runtime/repeated-write.ts';
import type { LoginClient } from './login-client.ts';

const writeIntervalMs = 1_000;
/** The maximum number of failed logins that wait for a write: some 2 MB. */
const maxWaiting = 5_000;
/** The failed logins of a person in an hour that have a row each. */
const rowsPerHour = 20;

/** The reasons of one failed login of a person. */
const reasonsOfOne = [
  'wrong_password',
  'account_inactive',
  'password_refused',
  'invalid_code',
  'invalid_passkey',
  'identity_held',
] as const;
/** The reasons of failed logins, also of rows that stand for several. */
export const failureReasons = [...reasonsOfOne, 'more_failures', 'unknown_address'] as const;

/** The account of a login that has failed, and why it failed. */
export interface FailedAccount {
  /** Undefined when no user of the tenant has the address, which is not kept. */
  readonly userId: number | undefined;
  readonly reason: (typeof reasonsOfOne)[number];
}

/** A login that has failed. */
interface FailedLogin extends FailedAccount {
  readonly tenantId: number;
  /** The methods that were tried, by RFC 8176. */
  readonly methods: readonly string[];
  readonly client: LoginClient;
}

interface Waiting extends FailedLogin {
  /** By the monotonic clock, in ms. */
  readonly at: number;
}

/**
 * Locks the users, as the references of the new rows do, before the rows of their hours: who
 * removes a user locks them in this order. The upsert adds up what all processes write, and so
 * tells which failures are among the first 20 of their hour.
 */
const storeFailures = `
  with known as (
    select id, tenant_id from users where id = any ($2::bigint[]) order by id for key share),
  failed as (
    select t.id as tenant_id, u.id as user_id, f.method, f.reason, f.network, f.user_agent, f.place, f.at,
           date_trunc('hour', f.at, 'UTC') as hour
      from (select *, now() - age * interval '1 millisecond' as at
              from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::float8[])
                   with ordinality as sent (tenant_id, user_id, method, reason, network, user_agent, age, place)) f
      join tenants t on t.id = f.tenant_id
      left join known u on u.id = f.user_id and u.tenant_id = f.tenant_id),
  numbered as (
    select *, count(*) over hours as added, row_number() over (hours order by place) as number
      from failed window hours as (partition by tenant_id, user_id, hour)),
  counted as (
    insert into logins as l (tenant_id, user_id, created_at, outcome, reason, failures, count)
    select tenant_id, user_id, hour, 'failed',
           case when user_id is null then 'unknown_address' else 'more_failures' end, count(*),
           case when user_id is null then count(*) else greatest(count(*) - ${rowsPerHour}, 0) end
      from failed group by tenant_id, user_id, hour order by tenant_id, user_id, hour
    on conflict (tenant_id, user_id, created_at) where failures is not null do update
      set failures = l.failures + excluded.failures,
          count = case
            when l.user_id is null then l.failures + excluded.failures
            else greatest(l.failures + excluded.failures - ${rowsPerHour}, 0)
          end
    returning tenant_id, user_id, created_at as hour, failures)
  insert into logins (tenant_id, user_id, created_at, method, outcome, reason, network, user_agent)
  select tenant_id, user_id, n.at, n.method, 'failed', n.reason, n.network, n.user_agent
    from numbered n join counted c using (tenant_id, user_id, hour)
   where c.failures - n.added + n.number <= ${rowsPerHour}
   order by n.place`;

interface FailedLoginsOptions {
  readonly control: ControlDatabase;
  readonly log: Pick<Logger, 'warn' | 'error'>;
}

/**
 * Stores the logins that fail, each second and at the stop, so that no request waits for it: a
 * login to a known address takes as long as one to an unknown one. A process that is killed
 * loses those of a second, and so does a connection that breaks off while it commits.
 *
 * In each hour, the first 20 of a person have a row each. Those beyond, and all that name an
 * address of nobody, are a number in one row. So guesses let the table grow by 21 rows an hour
 * and person, and one an hour and tenant.
 */
export class FailedLogins {
  readonly #options: FailedLoginsOptions;
  readonly #writes: RepeatedWrite;
  #waiting: Waiting[] = [];
  #isFailing = false;
  /** Failed logins that there was no room for since the last write. */
  #dropped = 0;

  constructor(options: FailedLoginsOptions) {
    this.#options = options;
    this.#writes = new RepeatedWrite(() => this.#write(), writeIntervalMs);
  }

  /** Notes a login that has failed. */
  note(failure: FailedLogin): void {
    if (this.#waiting.length >= maxWaiting) this.#dropped++;
    else this.#waiting.push({ ...failure, at: performance.now() });
  }

  /** Stores the rest, and logs how many are lost if that fails. */
  async stop(): Promise<void> {
    await this.#writes.stop();
    this.#logLost(this.#waiting.length);
  }

  async #write(): Promise<void> {
    const { control, log } = this.#options;
    this.#logLost(this.#dropped);
    this.#dropped = 0;
    const failures = this.#waiting;
    if (failures.length === 0) return;

    this.#waiting = [];
    try {
      await transactControl(
        control,
        query => query('store_failures', storeFailures, valuesOf(failures)),
        { isRepeatable: false },
      );
      this.#isFailing = false;
    } catch (error) {
      if (isOutcomeUnknown(error)) this.#logLost(failures.length);
      else this.#keep(failures);

      if (!this.#isFailing) {
        log.warn(
          { event: 'failed_logins_not_stored', err: describeError(error) },
          'failed logins stay in memory until the control database stores them',
        );
      }
      this.#isFailing = true;
    }
  }

  /** Keeps what was not stored for the next write. */
  #keep(failures: readonly Waiting[]): void {
    const all = [...failures, ...this.#waiting];
    this.#waiting = all.slice(0, maxWaiting);
    this.#dropped += all.length - this.#waiting.length;
  }

  #logLost(failures: number): void {
    if (failures === 0) return;

    this.#options.log.error(
      { event: 'failed_logins_lost', failures },
      'failed logins may be missing in the list of logins',
    );
  }
}

/** Returns the values of `storeFailures`: a list of each column. */
function valuesOf(failures: readonly Waiting[]): unknown[][] {
  const now = performance.now();

  return [
    failures.map(({ tenantId }) => tenantId),
    failures.map(({ userId }) => userId),
    failures.map(({ methods }) => methods.join(' ')),
    failures.map(({ reason }) => reason),
    failures.map(({ client }) => client.network),
    failures.map(({ client }) => client.userAgent),
    failures.map(({ at }) => now - at),
  ];
}
