import { randomUUID } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import type pg from 'pg';
import type { Passwords } from '../../accounts/auth/passwords.ts';
import { Role, Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { initialRoles } from '../../control/permissions.ts';
import { owners } from '../../control/secret-box.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { lockKey, lockSpaces, withLock } from '../../lib/postgres/advisory-locks.ts';
import { addSigningKey } from '../credentials/keys.ts';
import { generatePassword, insertUser } from '../credentials/users.ts';
import { runDatabases } from '../databases/protocol/run-databases.ts';
import type { PlacedCopy } from '../databases/protocol/run-plan.ts';
import { lockTenant } from '../databases/protocol/with-tenant.ts';
import type { DatabaseAddress } from '../databases/store/database-store.ts';
import { requireNotPurging } from '../registry/purging.ts';
import { placeTenant } from '../registry/servers.ts';
import { requireFreeSlug, takenMeanwhile, takeReservedSlug } from '../registry/tenant-slugs.ts';
import { connectTenant, findNamedTenant, findTenant } from '../registry/tenants.ts';
import { applyPacks } from './apply-packs.ts';
import type { Manifest } from './manifest.ts';
import { readPack } from './read-pack.ts';

/** A user with a new password, which is not stored anywhere. */
interface Login {
  email: string;
  password: string;
}

export interface Provisioned {
  tenant: Tenant;
  /** False when the tenant existed already; nothing was changed then. */
  created: boolean;
  /** The users that were added, the first administrator first. */
  logins: Login[];
}

/** The contents of the first database of a tenant. */
interface FirstData {
  /** The users that `populate` adds, with their passwords. */
  readonly logins: Login[];
  /** Begins what takes long and needs no database: the hashes of the passwords. */
  begin?(): void;
  /** Adds the users and the data of the tenant, also where a run that was killed has begun. */
  populate(tenant: Tenant): Promise<void>;
  /** True: the tenant sends no mail, and its legacy clients and programs get no access. */
  readonly isIsolated?: boolean;
  /** The copy of another tenant that `populate` makes; undefined: it makes none. */
  readonly copy?: PlacedCopy;
  /**
   * The last migration that the database gets before it is filled; undefined: that of this
   * build.
   */
  readonly version?: string | undefined;
}

/** A tenant that is being provisioned, and the connection that holds its locks. */
interface Provisioning {
  readonly installation: Installation;
  /** Connected to the control database. */
  readonly control: pg.Client;
  readonly manifest: Manifest;
  readonly first: FirstData;
  readonly reusesSlug: boolean;
}

interface ProvisionOptions {
  /** By default, that of the manifest. */
  readonly first?: FirstData;
  /** True to take a slug that is reserved, because a former tenant had it. */
  readonly reusesSlug?: boolean;
}

/**
 * Provisions a tenant: its row and key; its login role and database, which is a copy of the
 * template, with the roles, users and data of the manifest; then lets it be served. An existing
 * tenant is not changed.
 *
 * Its steps follow in this order, and so do the functions below. A step that fails ends the
 * run. When the process is killed instead, the locks end with its connection. Either way the
 * tenant stays `provisioning`, and nobody is served: the next run with the slug takes the same
 * steps, and completes it, also by another manifest or as a clone; `purge` removes it.
 * `makeDatabase` describes what is left until then.
 *
 * 1. Lock the slug: another run with the slug waits until this one has ended.
 * 2. `enterTenant` writes the row in one transaction, all of it or nothing. The next run finds
 *    it, and keeps its guid and signing key.
 * 3. Lock the tenant: a migration, a move and a purge of it refuse meanwhile.
 * 4. `renewTenant`, for a row of an earlier run: the manifest may have changed.
 * 5. `makeDatabase` makes the database, fills it, and lets the tenant be served.
 * @throws {OperatorError} when the slug is being purged or is reserved, or a step fails
 */
export async function provision(
  installation: Installation,
  passwords: Passwords,
  manifest: Manifest,
  {
    first = firstDataOf(installation, passwords, manifest),
    reusesSlug = false,
  }: ProvisionOptions = {},
): Promise<Provisioned> {
  const { controlUrl } = installation;
  const { slug } = manifest;

  return withLock(controlUrl, lockSpaces.slug, lockKey(slug), async control => {
    const run: Provisioning = { installation, control, manifest, first, reusesSlug };

    const found = await findBySlug(run);
    if (found && found.status !== 'provisioning') {
      return { tenant: found, created: false, logins: [] };
    }

    const tenant = found ?? (await enterTenant(run));
    await lockTenant(control, tenant.id, slug);
    if (found) await renewTenant(run, found);
    first.begin?.();
    await makeDatabase(run, tenant);

    return { tenant: await findTenant(installation, slug), created: true, logins: first.logins };
  });
}

/**
 * Returns the tenant that the slug names, in any state.
 * @throws {OperatorError} when one with the slug is being purged
 */
async function findBySlug({ installation, manifest }: Provisioning): Promise<Tenant | null> {
  const { slug } = manifest;
  const found = await findNamedTenant(installation, slug);
  if (found) await requireNotPurging(installation, slug);

  return found;
}

/** Inserts the tenant's row with its first signing key. It has no database yet. */
async function enterTenant({
  installation,
  manifest,
  first,
  reusesSlug,
}: Provisioning): Promise<Tenant> {
  const { secrets } = installation;
  const { slug, name, appId = slug, appUrl, features } = manifest;
  const server = await placeTenant(installation, manifest.server);
  const { em } = await installation.control();

  if (!reusesSlug) await requireFreeSlug(installation, slug);

  const entered = em.fork().transactional(async tx => {
    const guid = randomUUID();
    if (reusesSlug) {
      await takeReservedSlug(tx, slug, guid);
    }

    const tenant = tx.create(Tenant, {
      guid,
      slug,
      name,
      appId,
      appUrl: appUrl ?? null,
      features,
      isIsolated: first.isIsolated ?? false,
      server: tx.merge(server),
      databaseName: noDatabase(guid),
      roleName: noDatabase(guid),
      rolePassword: secrets.seal('', owners.rolePassword(guid)),
    });
    await tx.flush();

    addSigningKey(tx, tenant, secrets);
    await tx.flush();

    return tenant;
  });

  return entered.catch(error => {
    throw takenMeanwhile(error, slug);
  });
}

/** The value in place of the name of a tenant's database until the tenant has one. */
const noDatabase = (guid: string): string => `none of ${guid}`;

/** Updates a tenant whose provision has not ended by the present manifest. */
async function renewTenant(
  { control, manifest, first }: Provisioning,
  tenant: Tenant,
): Promise<void> {
  const { name, appId = tenant.slug, appUrl, features } = manifest;
  const { isIsolated = false } = first;

  await control.query(
    `update tenants set name = $2, app_id = $3, app_url = $4, features = $5, isolated = $6
      where id = $1 and status = 'provisioning'`,
    [tenant.id, name, appId, appUrl, features, isIsolated],
  );
  Object.assign(tenant, { name, appId, appUrl: appUrl ?? null, features, isIsolated });
}

/**
 * Makes the database of a tenant, fills it, and lets the tenant be served, in the steps of the
 * goal `provision` (`database-protocol.ts`), which `database-run.ts` takes:
 *
 * 1. `condemn leftovers`: what an earlier run has reserved, or even exchanged, is not used.
 * 2. `drop leftovers`: the databases and login roles of earlier runs.
 * 3. `reserve`: records a name that was never used, and a password.
 * 4. `create`: the login role, which cannot log in, and the database, a copy of the template
 *    with the seeds, such as its entity statuses; then its stamp, which names no tenant.
 * 5. `fill`: `first.populate` adds users and data.
 * 6. `exchange`: in one transaction, the row of the tenant names the database and its version.
 * 7. `open current`: the stamp names the tenant, and the role can log in.
 * 8. `serve`: the tenant is `active`, after a login with its role.
 *
 * The leftovers of a run that does not end well:
 *
 *   failed     the row of the tenant and its key; from step 5 on also its roles and users,
 *              whose passwords nobody knows, and their audit entries: the next run removes
 *              them in `removeEarlierPeople`. The database is condemned, also after the
 *              exchange, and dropped if its server is there
 *   killed     that, and the database: recorded from step 3 on, on its server from 4 on.
 *              Nobody uses it, and the next run drops it in steps 1 and 2
 *   killed     after step 8, before the command has printed the passwords: a tenant that is
 *              served. The next run refuses, because it exists: `user password` sets another
 * @throws {OperatorError} when a step fails
 */
async function makeDatabase(
  { installation, control, first }: Provisioning,
  tenant: Tenant,
): Promise<void> {
  const { id, guid, slug } = tenant;
  const placement = {
    server: tenant.server,
    origin: 'template',
    version: first.version,
    copy: first.copy,
    fill: ({ server, database }: DatabaseAddress) =>
      first.populate(Object.assign(tenant, { server, databaseName: database })),
  };

  await runDatabases({ installation, control, tenant: { id, guid, slug } }, 'provision', {
    placement,
  });
}

/** Returns the contents of the first database by a manifest: packs, entities and users. */
export function firstDataOf(
  installation: Installation,
  passwords: Passwords,
  manifest: Manifest,
): FirstData {
  const people = peopleOf(manifest);
  const hashes = new Map<string, Promise<string>>();
  const begun = {
    hash: (password: string): Promise<string> => hashes.get(password) ?? passwords.hash(password),
  };

  return {
    logins: people.map(({ email, password }) => ({ email, password })),

    begin() {
      let last: Promise<unknown> = Promise.resolve();

      for (const { password } of people) {
        // One after the other: the queue of hashes is bounded.
        const hash = last.then(() => passwords.hash(password));
        hash.catch(() => {}); // reported by `populate`, which awaits it
        hashes.set(password, hash);
        last = hash;
      }
    },

    async populate(tenant) {
      await addPacks(installation, tenant, manifest);
      const entities = await makeEntities(installation, tenant, manifest);
      await addUsers(installation, begun, tenant, people, entities);
    },
  };
}

/** Applies the packs of the manifest. */
async function addPacks(
  installation: Installation,
  tenant: Tenant,
  { packs: names }: Manifest,
): Promise<void> {
  if (names.length === 0) return;

  const packs = await Promise.all(names.map(readPack));
  await connectTenant(installation, tenant, client => applyPacks(client, packs));
}

/**
 * Inserts the entities of the manifest, unless they exist.
 * @returns their ids, and the times at which they were created, by name
 */
async function makeEntities(
  installation: Installation,
  tenant: Tenant,
  { entities }: Manifest,
): Promise<Map<string, MadeEntity>> {
  if (entities.length === 0) return new Map();

  return connectTenant(installation, tenant, async client => {
    for (const { name, entityType } of entities) {
      await client.query(
        `insert into entities (name, entity_type)
         select $1, $2 where not exists (select from entities where name = $1)`,
        [name, entityType],
      );
    }

    const { rows } = await client.query<{ id: string; name: string; since: string }>(
      `select id, name, to_json(created_at) #>> '{}' as since from entities`,
    );
    return new Map(rows.map(({ id, name, since }) => [name, { id: Number(id), since }]));
  });
}

interface MadeEntity {
  readonly id: number;
  /** The time at which it was created, in ISO 8601 with microseconds. */
  readonly since: string;
}

/** A user of the manifest, with a new password. */
type Person = ReturnType<typeof peopleOf>[number];

/** Returns the users of a manifest with new passwords, the first administrator first. */
function peopleOf({ admin, users }: Manifest) {
  const administrator = {
    ...admin,
    role: 'Administrator',
    scope: 'All' as const,
    entity: undefined,
  };

  return [administrator, ...users].map(person => ({ ...person, password: generatePassword() }));
}

/** Adds the initial roles and the users in one transaction. */
async function addUsers(
  installation: Installation,
  passwords: Pick<Passwords, 'hash'>,
  tenant: Tenant,
  people: readonly Person[],
  entities: ReadonlyMap<string, MadeEntity>,
): Promise<void> {
  const { em } = await installation.control();

  await em.fork().transactional(async tx => {
    await removeEarlierPeople(tx, tenant);

    for (const role of initialRoles) tx.create(Role, { tenant, ...role });
    await tx.flush();

    for (const { entity, ...person } of people) {
      const own = entity === undefined ? undefined : entities.get(entity);
      await insertUser(tx, passwords, {
        tenant,
        ...person,
        entityId: own?.id ?? null,
        entitySince: own?.since ?? null,
      });
    }
  });
}

/**
 * Removes the users and roles that an earlier run has added to a tenant that is not served yet,
 * and every audit entry of them: they may be those of another company, whose clone had the
 * slug. The transaction adds those of this run.
 *
 * Until it ends, no other run begins with the tenant: that would condemn the database that this
 * run has reserved. So a run that was paused, while another one began, adds nobody.
 * @throws {OperatorError} when another run has begun
 */
export async function removeEarlierPeople(
  em: EntityManager,
  { id, slug, server, databaseName }: Tenant,
): Promise<void> {
  const rows = await em.execute<object[]>(
    `select from tenants t join tenant_databases d on d.tenant_id = t.id
      where t.id = ? and t.status = 'provisioning'
        and d.server_id = ? and d.database_name = ? and d.state = 'reserved' for update`,
    [id, server.id, databaseName],
  );
  if (rows.length === 0) {
    throw new OperatorError(
      `another run provisions ${slug}, or has provisioned it: this one has stopped`,
    );
  }

  // The deletions are entries of the log, too.
  await em.execute('delete from users where tenant_id = ?', [id]);
  await em.execute('delete from roles where tenant_id = ?', [id]);
  await em.execute('delete from audit_log where tenant_id = ?', [id]);
}
