import { randomBytes, randomUUID } from 'node:crypto';
import type pg from 'pg';
import { changeChannel } from '../../control/change-topics.ts';
import type { ControlAddress, KeyAccess } from '../../control/installation.ts';
import { owners, signingKeyBytes } from '../../control/secret-box.ts';
import { lockSpaces, withLock } from '../../lib/postgres/advisory-locks.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import { activateText } from '../../sales/webhooks/webhook-queue.ts';
import { createTenantKey } from '../../sales/webhooks/webhook-secret.ts';
import { doubtUnfinished } from '../backup/archive-rows.ts';
import { goOnAfter, skippedNumbers } from '../databases/copy/carry-numbers.ts';

/** Report of the changes to a restored control database. */
export interface AfterRestoreReport<Replayed> {
  /**
   * The newest change that the control database has, in ISO 8601: later ones are known only if
   * they were replayed.
   */
  newestChange: string | null;
  sessionsEnded: number;
  keysDisabled: number;
  tokensRevoked: number;
  clientsRevoked: number;
  /** Keys of programs. */
  programKeysRevoked: number;
  /** Recovery codes of people. */
  recoveryCodesRemoved: number;
  mailsWithdrawn: number;
  sequencesMoved: number;
  /**
   * The access that was revoked later, and is revoked again; null if no later state is known.
   */
  replayed: Replayed | null;
}

/**
 * Makes a restored control database safe to serve from, in one transaction:
 *
 * 1. Every session ends. So a session that was ended later does not come back. The refresh
 *    token of any other one is refused like that of an ended session, and not reported as
 *    stolen.
 * 2. Every signing key is disabled, and each tenant gets a new one. So no access token that was
 *    issued before is valid, whichever keys and users were disabled since.
 * 3. Every legacy token, every API client and every key of a program is revoked: it may have
 *    become known later. Links in mails that were sent before are withdrawn: a link that was
 *    used later would work again. So are logins that wait for a second factor; and recovery
 *    codes are removed, because one that was used later would be good again. Whoever has an
 *    authenticator app makes new ones.
 * 4. Sequences go on after all numbers that may have been given since.
 * 5. Users, API clients and tenants that a later control database has as disabled, revoked,
 *    suspended or gone become so (`replay`).
 * 6. No fence is left, and no database of a tenant is dropped before an operator says so: a
 *    database that was reserved or condemned then may be the one that the tenant has now.
 * 7. An archive that was being written then is unproved: the run may have ended.
 * 8. The webhooks of every tenant are served: the first one of a tenant may have been created
 *    since.
 * 9. Every process drops its caches.
 *
 * @param replay applies the revocations of a later state of the control database, if one can be
 *   read
 */
export async function afterRestore<Replayed>(
  installation: ControlAddress & KeyAccess,
  replay?: (client: pg.Client) => Promise<Replayed>,
): Promise<AfterRestoreReport<Replayed>> {
  return withLock(installation.controlUrl, lockSpaces.control, 0, client =>
    inTransaction(client, () => makeSafe(client, installation, replay)),
  );
}

async function makeSafe<Replayed>(
  client: pg.Client,
  { secrets }: KeyAccess,
  replay: ((client: pg.Client) => Promise<Replayed>) | undefined,
): Promise<AfterRestoreReport<Replayed>> {
  const count = async (text: string): Promise<number> => (await client.query(text)).rowCount ?? 0;
  const newestChange = await readNewestChange(client);
  // The lost control database may have given numbers after the time of the restored one, which
  // tenant databases have. No other database has those of sequences of small numbers.
  const { bigint } = skippedNumbers;
  const { moved: sequencesMoved } = await goOnAfter(client, new Map(), { bigint });
  const replayed = replay ? await replay(client) : null;
  const sessionsEnded = await count(
    `update sessions set revoked_at = now(), revoked_reason = 'restored' where revoked_at is null`,
  );
  const keysDisabled = await count(
    `update signing_keys set status = 'disabled', retired_at = coalesce(retired_at, now()) where status <> 'disabled'`,
  );
  await count('delete from tenant_fences');
  await doubtUnfinished(client);
  // A database that was being made then may be the one that a tenant has now. It is kept until
  // an operator decides, and so is a database that was being dropped.
  await count(
    `update tenant_databases d set state = 'kept', kept_by = coalesce(kept_by, 'back'), keep_until = null
       from tenants t where t.id = tenant_id and t.purging_at is null
        and (d.state in ('reserved', 'condemned', 'kept') or d.state = 'current' and t.status = 'provisioning')`,
  );
  const { rows: tenants } = await client.query<{ id: string; guid: string }>(
    'select id, guid from tenants',
  );
  for (const { id, guid } of tenants) {
    const kid = randomUUID();
    const secret = secrets.seal(randomBytes(signingKeyBytes), owners.signingKey(guid, kid));
    await client.query('insert into signing_keys (kid, tenant_id, secret) values ($1, $2, $3)', [
      kid,
      id,
      secret,
    ]);
    await client.query(activateText, [id, createTenantKey(secrets, guid)]);
  }
  const tokensRevoked = await count(
    'update legacy_tokens set revoked_at = now() where revoked_at is null',
  );
  const clientsRevoked = await count(
    'update api_clients set revoked_at = now() where revoked_at is null',
  );
  const programKeysRevoked = await count(
    'update program_keys set revoked_at = now() where revoked_at is null',
  );
  await count('delete from login_challenges');
  await count('delete from factors where confirmed_at is null');
  // The archive does not know which ID tokens were used since: none of before is good. The time
  // of one is in whole seconds.
  await count(`update identities set logged_out_at = now() - interval '1 second'`);
  const recoveryCodesRemoved = await count('delete from recovery_codes');
  const mailsWithdrawn =
    (await count('delete from mail_deliveries')) + (await count('delete from account_notices'));
  await client.query('select pg_notify($1, $2)', [changeChannel, '*:*']);

  return {
    newestChange,
    sessionsEnded,
    keysDisabled,
    tokensRevoked,
    clientsRevoked,
    programKeysRevoked,
    recoveryCodesRemoved,
    mailsWithdrawn,
    sequencesMoved,
    replayed,
  };
}

/**
 * Returns the newest time that the service or an operator has written, before the changes of
 * this run.
 */
export async function readNewestChange(client: pg.Client): Promise<string | null> {
  const { rows } = await client.query<{ at: Date | null }>(
    `select greatest((select max(updated_at) from tenants), (select max(created_at) from audit_log),
                     (select max(greatest(created_at, refreshed_at, revoked_at)) from sessions)) as at`,
  );
  return rows[0]?.at?.toISOString() ?? null;
}
