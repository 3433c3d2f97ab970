import type { EntityManager } from '@mikro-orm/postgresql';
import { replaceCanaries, storeNextCanary } from '../../control/master-key-canary.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { changeOrUndo } from '../command/change-or-undo.ts';
import { type RegisteredProcess, registeredProcesses } from '../tenants/running-services.ts';
import { requireMasterKey } from './require-master-key.ts';

type Keys = Pick<Installation, 'control' | 'secrets'>;

/** A secret of the control database, and what it belongs to. */
interface StoredSecret {
  id: string;
  sealed: Buffer;
  /** Of its tenant, or of the installation; null without one. */
  guid: string | null;
  /** The id of a signing key, the name of a server, or the fingerprint of a data key. */
  name: string;
}

/** Where the control database has secrets, and for whom each of them is sealed. */
const secretColumns: { table: string; column: string; select: string; owner: (secret: StoredSecret) => string }[] = [
  {
    table: 'tenants',
    column: 'role_password',
    select: 'select id, role_password as sealed, guid from tenants',
    owner: ({ guid }) => owners.rolePassword(guid ?? ''),
  },
  {
    table: 'tenant_databases',
    column: 'role_password',
    select: `select d.id, d.role_password as sealed, guid from tenant_databases d join tenants t on t.id = tenant_id
              where d.role_password is not null`,
    owner: ({ guid }) => owners.rolePassword(guid ?? ''),
  },
  {
    table: 'signing_keys',
    column: 'secret',
    select:
      'select kid as id, secret as sealed, guid, kid as name from signing_keys join tenants t on t.id = tenant_id',
    owner: ({ guid, name }) => owners.signingKey(guid ?? '', name),
  },
  {
    table: 'servers',
    column: 'admin_url',
    select: 'select id, admin_url as sealed, name from servers where admin_url is not null',
    owner: ({ name }) => owners.serverUrl(name),
  },
  {
    table: 'backup_keys',
    column: 'sealed',
    select: `select k.id, k.sealed, guid, k.fingerprint as name
               from backup_keys k left join tenants t on t.id = k.tenant_id`,
    owner: ({ guid, name }) => owners.backupKey(guid, name),
  },
  {
    table: 'webhook_tenants',
    column: 'sealed',
    select: 'select w.id, w.sealed, guid from webhook_tenants w join tenants t on t.id = tenant_id',
    owner: ({ guid }) => owners.webhookKey(guid ?? ''),
  },
  {
    table: 'installation',
    column: 'archive_key',
    select: 'select id, archive_key as sealed, id as guid from installation where archive_key is not null',
    owner: ({ guid }) => owners.archiveKey(guid ?? ''),
  },
];

/**
 * Begins a change of the master key: registers the key in `MASTER_KEY_PREVIOUS`, so that processes may start with it as
 * their `MASTER_KEY`, beside the present key. It replaces another registered key, such as a mistyped one.
 * @param isDryRun true to return the result, and to change nothing
 * @returns false when the key was registered already
 * @throws {OperatorError} when there is no `MASTER_KEY_PREVIOUS`
 */
export function registerNextKey({ control, secrets }: Keys, isDryRun = false): Promise<boolean> {
  return changeCanaries({ control, secrets }, isDryRun, async em => {
    if (secrets.previous) return storeNextCanary(em, secrets.previous);
    throw new OperatorError('MASTER_KEY_PREVIOUS is not set: set it to the next master key');
  });
}

/**
 * Ends a change of the master key: seals every secret of the control database again under `MASTER_KEY`, and makes that
 * the only key of the installation, in one transaction. Run it with the former key in `MASTER_KEY_PREVIOUS`. It can be
 * run again: secrets that are sealed under the new key already can be opened, too.
 * @param isDryRun true to open and seal each secret, and to change nothing
 * @returns the number of secrets
 * @throws {OperatorError} when a secret was sealed under neither key; nothing is changed then
 */
export function resealSecrets({ control, secrets }: Keys, isDryRun = false): Promise<number> {
  return changeCanaries({ control, secrets }, isDryRun, async em => {
    let count = 0;
    for (const { table, column, select, owner } of secretColumns) {
      const stored = await em.execute<StoredSecret[]>(select);
      const sealed = stored.map(secret =>
        secrets.seal(openSecret(secrets, secret.sealed, owner(secret)), owner(secret)).toString('hex'),
      );
      const key = table === 'signing_keys' ? 'kid' : 'id';
      await em.execute(
        `update ${table} t set ${column} = decode(new.sealed, 'hex')
           from unnest(?::text[], ?::text[]) as new (id, sealed) where t.${key}::text = new.id`,
        [`{${stored.map(({ id }) => id).join(',')}}`, `{${sealed.join(',')}}`],
      );
      count += stored.length;
    }
    await replaceCanaries(em, secrets);
    return count;
  });
}

/**
 * Runs a step of a change in one transaction. Steps run one after the other, and each checks the key again: another
 * step may have made it wrong since the start of the command.
 */
function changeCanaries<T>(
  { control, secrets }: Keys,
  isDryRun: boolean,
  step: (em: EntityManager) => Promise<T>,
): Promise<T> {
  const transact = (work: (em: EntityManager) => Promise<T>) => control.em.fork().transactional(work);
  return changeOrUndo(transact, isDryRun, async em => {
    await em.execute('select from installation for update');
    await requireMasterKey(em, secrets);
    return step(em);
  });
}

/** @throws {OperatorError} when the secret was sealed under another master key */
export function openSecret(secrets: SecretBox, sealed: Uint8Array, owner: string): Buffer {
  try {
    return secrets.open(sealed, owner);
  } catch (cause) {
    const message =
      `Nothing was changed: the secret ${owner} was sealed under neither MASTER_KEY nor MASTER_KEY_PREVIOUS. ` +
      'Run the command with the master key that the service runs with';
    throw new OperatorError(message, { cause });
  }
}

/**
 * What a process lacks once the secrets are sealed under a new key, which is then the only one of the installation:
 * - `lacks_key`: it could open no secret, and nobody could log in.
 * - `is_previous`: it has the key as `MASTER_KEY_PREVIOUS` only, so it could not start again. A command would seal new
 *   secrets under its other key.
 */
type Lack = 'lacks_key' | 'is_previous';

/** A running process whose keys block `control reseal`. */
export interface BlockingHolder extends Pick<RegisteredProcess, 'kind' | 'host' | 'pid' | 'build'> {
  lack: Lack;
}

/** Returns the running processes and commands, without this one, whose `MASTER_KEY` is not the one of this command. */
export async function processesBlockingReseal({
  statements,
  secrets,
  member,
}: Pick<Installation, 'statements' | 'secrets' | 'member'>): Promise<BlockingHolder[]> {
  const next = secrets.current.fingerprint;
  const others = (await registeredProcesses(statements)).filter(
    ({ id, key }) => key !== next && id !== member?.process.id,
  );
  return others.map(({ kind, host, pid, build, previous }) => {
    return { kind, host, pid, build, lack: previous === next ? 'is_previous' : 'lacks_key' };
  });
}
