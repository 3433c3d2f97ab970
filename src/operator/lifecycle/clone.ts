import { randomUUID } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import type pg from 'pg';
import type { Passwords } from '../../accounts/auth/passwords.ts';
import type { Tenant } from '../../control/control-entities.ts';
import type { ControlStatements, Installation } from '../../control/installation.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import { tenantFeatures } from '../../control/tenant-features.ts';
import { requireTenantHead, tenantHead } from '../../control/tenant-head.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import { findUser } from '../credentials/users.ts';
import {
  type GivenNumbers,
  goOnAfter,
  readGivenNumbers,
  readKnownNumbers,
  skippedNumbers,
} from '../databases/copy/carry-numbers.ts';
import {
  type EarlierData,
  fillWith,
  requireKnownVersion,
} from '../databases/copy/fill-database.ts';
import { copyTables } from '../databases/copy/fill-tables.ts';
import { readForeignObjects, rowsLeft } from '../databases/copy/foreign-objects.ts';
import { type CopyRoom, checkRoom, planRoom, readBytes } from '../databases/copy/room.ts';
import { beginOwnFeed } from '../databases/store/database-stamp.ts';
import { copyFrom, requireNotPurging } from '../registry/purging.ts';
import { tenantExists } from '../registry/read-tenants.ts';
import { requireFreeSlug } from '../registry/tenant-slugs.ts';
import {
  closedError,
  connectTenant,
  findNamedTenant,
  findTenant,
  holdOpen,
} from '../registry/tenants.ts';
import { requireUsableTenant } from '../registry/usable-tenant.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import { inSnapshot } from '../schema/snapshot.ts';
import { canonicalTextSettings, identityTables } from '../schema/tenant-tables.ts';
import { checkManifest, type Manifest } from './manifest.ts';
import { provision, removeEarlierPeople } from './provision.ts';

/** A clone: of which tenant, under which slug, and the users who may log in to it. */
export interface CloneRequest {
  readonly slug: string;
  readonly newSlug: string;
  /** The addresses of users of the source. */
  readonly logins: readonly string[];
}

/**
 * Creates a tenant with the data, roles and users that another tenant has at one moment. The
 * source is served meanwhile. The clone has its own database, login role and signing key;
 * sessions, the list of logins, API clients and their tokens, the keys of programs and recovery
 * codes are not copied. Authenticator apps are: no password alone lets in who has a second
 * factor in the source. It is isolated: no mail gets from it to the users of the source. It can
 * be run again after it was killed at any point.
 * Every user of it is disabled but those who are named: who leaves the source, or loses rights
 * there, is not thought of in a clone. Those log in with their passwords, also if the source
 * refuses passwords (`refusesPasswords`).
 * @param data earlier data of the source, in place of its present one
 */
export async function cloneTenant(
  installation: Installation,
  passwords: Passwords,
  { slug, newSlug, logins }: CloneRequest,
  data?: EarlierData,
): Promise<Tenant> {
  const source = await findTenant(installation, slug);
  await requireUsableTenant(installation, source);
  if (data === undefined) await requireTenantHead(source);
  const open = await requireActiveUsers(installation, source, logins);
  const manifest = manifestOf(source, newSlug);
  if (data) await requireKnownVersion(data.schemaVersion);
  const { tenant, created } = await copyFrom(installation, source, newSlug, async () => {
    const copied = data ?? (await presentData(installation, source));
    await checkRoom(installation, {
      server: source.server,
      adminUrl: installation.servers.adminUrl(source.server),
      of: slug,
      bytes: copied.bytes,
    });

    return provision(installation, passwords, manifest, {
      first: {
        logins: [],
        populate: clone => populate(installation, source, clone, { data: copied, open }),
        isIsolated: true,
        copy: { bytes: copied.bytes },
        version: data?.schemaVersion,
      },
    });
  });
  if (!created) throw tenantExists(tenant);

  return tenant;
}

/**
 * Checks that a tenant can be cloned, and returns where its clone would be, and what others
 * have made in its database that no clone has; changes nothing.
 * @param isOfPresent true if the clone gets the present data
 * @throws {OperatorError} when it is not ready, or the new slug is taken or no slug
 */
export async function planClone(
  installation: Installation,
  { slug, newSlug, logins }: CloneRequest,
  isOfPresent: boolean,
): Promise<ClonePlan> {
  const source = await findTenant(installation, slug);
  await requireUsableTenant(installation, source);
  if (isOfPresent) await requireTenantHead(source);
  const { server } = manifestOf(source, newSlug);
  await requireNotPurging(installation, newSlug);
  const existing = await findNamedTenant(installation, newSlug);
  if (existing && existing.status !== 'provisioning') throw tenantExists(existing);
  if (!existing) await requireFreeSlug(installation, newSlug);
  const open = await requireActiveUsers(installation, source, logins);
  const leaves = await readLeft(installation, source);
  const room = await planRoom(installation, source, source.server);
  return {
    slug: newSlug,
    of: slug,
    server: server ?? source.server.name,
    logins: open,
    sourceRefusesPasswords: await refusesPasswords(installation, source),
    leaves,
    room,
  };
}

interface ClonePlan {
  readonly slug: string;
  readonly of: string;
  readonly server: string;
  /** The addresses of the users who may log in; all others are disabled. */
  readonly logins: readonly string[];
  /** True if the clone accepts the passwords of these users, and the source does not. */
  readonly sourceRefusesPasswords: boolean;
  readonly leaves: readonly string[];
  readonly room: CopyRoom | null;
}

/**
 * Returns the normalised addresses of users.
 * @throws {OperatorError} when the tenant does not have one of them, or has disabled one
 */
async function requireActiveUsers(
  installation: Installation,
  { slug }: Tenant,
  logins: readonly string[],
): Promise<string[]> {
  const users = await Promise.all(logins.map(email => findUser(installation, slug, email)));
  const disabled = users.find(({ disabledAt }) => disabledAt);
  if (disabled) throw new OperatorError(`User ${disabled.email} of ${slug} is disabled`);

  return users.map(({ email }) => email);
}

/**
 * True if the rules of sign-in of a tenant refuse passwords. A clone of it accepts them: it has
 * no providers, so that nobody could log in to it otherwise.
 */
export async function refusesPasswords(
  { statements }: ControlStatements,
  { id }: Pick<Tenant, 'id'>,
): Promise<boolean> {
  const { rows } = await statements.query(
    `select from sign_in_rules where tenant_id = $1 and password_logins = 'refused'`,
    [id],
  );
  return rows.length > 0;
}

/** Returns what others have made in the database of a tenant that no clone of it has. */
export async function readLeft(installation: Installation, source: Tenant): Promise<string[]> {
  const { server, databaseName: database, roleName: role } = source;
  const found = await readForeignObjects(installation, { server, database, role });

  return [...rowsLeft(found), ...found.others];
}

/** Returns the manifest of a clone. It has no administrator: the users are copied. */
function manifestOf({ name, appId, features, server }: Tenant, newSlug: string): Manifest {
  const admin = { email: 'nobody@clone' };
  const known = tenantFeatures.filter(feature => features.includes(feature));

  return checkManifest(
    { slug: newSlug, name, appId, features: known, server: server.name, admin },
    'the new slug',
  );
}

/** Copies users and data into the clone. */
async function populate(
  installation: Installation,
  source: Tenant,
  clone: Tenant,
  { data, open }: { data: EarlierData; open: readonly string[] },
): Promise<void> {
  const users = await copyUsers(installation, source, clone, open);
  await fillWith(installation, data)({ server: clone.server, database: clone.databaseName });
  const given = await readGivenBy(installation, source);
  await connectTenant(installation, clone, client =>
    inTransaction(client, async () => {
      await goOnAfter(client, given.numbers, given.isKnown ? {} : skippedNumbers);
      await makeOwn(client, users);
      await beginOwnFeed(client);
    }),
  );
}

/**
 * Returns the numbers that a tenant has got until now. Its users, who are copied too, know
 * them, and its earlier data may not have them.
 * @returns `isKnown`: false if its database cannot be read, and more may have been given
 */
async function readGivenBy(
  installation: Installation,
  source: Tenant,
): Promise<{ numbers: GivenNumbers; isKnown: boolean }> {
  const { servers, controlUrl } = installation;
  const url = servers.adminUrl(source.server, source.databaseName);

  const numbers = await withConnection(url, readGivenNumbers).catch(() => undefined);
  if (numbers) return { numbers, isKnown: true };

  const known = await withConnection(controlUrl, client => readKnownNumbers(client, source));
  return { numbers: known, isKnown: false };
}

/**
 * Returns the data that a tenant has when it is copied.
 * @throws {OperatorError} when its database is closed
 */
async function presentData(installation: Installation, source: Tenant): Promise<EarlierData> {
  const { guid, slug, server, databaseName } = source;
  await connectTenant(installation, source, client => holdOpen(client, source));

  const copy = (from: pg.Client, target: pg.Client) =>
    inSnapshot(from, async () => {
      const { guid: found, applied } = await readSchemaState(from);
      if (found !== guid) throw closedError(slug);
      await requireTenantHead({ slug, schemaVersion: applied.at(-1) ?? null });
      return copyTables(from, target, identityTables);
    });

  return {
    description: 'the present data',
    schemaVersion: await tenantHead(),
    bytes: await readBytes(installation.servers.adminUrl(server, databaseName)),
    fill: target =>
      withConnection(
        installation.servers.adminUrl(server, databaseName),
        from => copy(from, target),
        {
          settings: canonicalTextSettings,
        },
      ),
  };
}

/** A user of the clone, with the id that the user has in the source. */
interface CopiedUser {
  oldId: string;
  id: string;
  guid: string;
}

/**
 * Copies the roles and users of one moment: in one statement.
 * @param open the addresses of the users who are not disabled
 */
async function copyUsers(
  { control, secrets }: Installation,
  source: Tenant,
  clone: Tenant,
  open: readonly string[],
): Promise<CopiedUser[]> {
  const { em } = await control();

  return em.fork().transactional(async em => {
    await removeEarlierPeople(em, clone);

    const users = await em.execute<CopiedUser[]>(
      `with copied_roles as (
         insert into roles (tenant_id, name, permissions, requires_second_factor)
         select ?, name, permissions, requires_second_factor from roles where tenant_id = ? order by id returning tenant_id, id, name
       ), copied_users as (
         insert into users (tenant_id, role_id, guid, kind, email, password_hash, first_name, last_name, scope, entity_id,
                            entity_since, networks, invited_at, confirmed_at, disabled_at, must_set_up_factor, copied_from)
         select c.tenant_id, c.id, new_guid, kind, case kind when 'program' then 'program:' || new_guid else email end,
                password_hash, first_name, last_name, scope, entity_id, entity_since, networks, invited_at, confirmed_at,
                case when email = any (?::text[]) then disabled_at else coalesce(disabled_at, now()) end, must_set_up_factor, u.id
           from (select *, gen_random_uuid() as new_guid from users where tenant_id = ? order by id) u
           join roles r on r.id = u.role_id join copied_roles c on c.name = r.name
          order by u.id returning id, guid, copied_from
       )
       select copied_from as "oldId", id, guid from copied_users`,
      [clone.id, source.id, `{${open.map(email => JSON.stringify(email)).join(',')}}`, source.id],
    );
    await copyFactors(em, secrets, source, clone);

    return users;
  });
}

const apps = `
  select f.id, f.name, secret, last_step::text as "lastStep", f.confirmed_at::text as "confirmedAt", u.id as "userId"
    from factors f join users u on u.copied_from = f.user_id
   where f.tenant_id = ? and u.tenant_id = ? and f.secret is not null and f.confirmed_at is not null order by f.created_at`;
const insertApp = `
  insert into factors (id, tenant_id, user_id, kind, name, secret, last_step, confirmed_at)
  values (?, ?, ?, 'totp', ?, ?, ?, ?)`;
// An isolated tenant sends no mail: the operator resets the factors of these people.
const markOthers = `
  update users u set must_set_up_factor = true
   where u.tenant_id = ?
     and exists (select from factors f where f.tenant_id = ? and f.user_id = u.copied_from and f.confirmed_at is not null)
     and not exists (select from factors f where f.tenant_id = u.tenant_id and f.user_id = u.id)`;
// A role may require a factor of a person who has none, and sets one up from a known network.
const copyNetworks = `
  insert into login_networks (user_id, network, last_login_at)
  select u.id, n.network, n.last_login_at from users u join login_networks n on n.user_id = u.copied_from
   where u.tenant_id = ? and not u.must_set_up_factor`;

/**
 * Copies the authenticator apps of people, sealed for the clone. A person with other factors
 * only, or with an app whose key does not open, gets no session before the operator has reset
 * the factors: passkeys and recovery codes are not copied.
 */
async function copyFactors(
  em: EntityManager,
  secrets: SecretBox,
  source: Tenant,
  clone: Tenant,
): Promise<void> {
  for (const app of await em.execute<CopiedApp[]>(apps, [source.id, clone.id])) {
    const key = openKey(secrets, app.secret, owners.factor(source.guid, app.id));
    if (!key) continue;

    const id = randomUUID();
    await em.execute(insertApp, [
      id,
      clone.id,
      app.userId,
      app.name,
      secrets.seal(key, owners.factor(clone.guid, id)),
      app.lastStep,
      app.confirmedAt,
    ]);
  }
  await em.execute(markOthers, [clone.id, source.id]);
  await em.execute(copyNetworks, [clone.id]);
}

/** An authenticator app of the source, and the user of the clone who gets it. */
interface CopiedApp {
  id: string;
  name: string;
  secret: Buffer;
  lastStep: string | null;
  confirmedAt: string;
  userId: string;
}

/** Opens the key of an app; returns undefined when its row was changed. */
function openKey(secrets: SecretBox, sealed: Buffer, owner: string): Buffer | undefined {
  try {
    return secrets.open(sealed, owner);
  } catch {
    return undefined;
  }
}

/**
 * Makes the activities and audit entries of the clone refer to the users of the clone, which
 * have new ids and guids.
 */
async function makeOwn(client: pg.Client, users: CopiedUser[]): Promise<void> {
  await client.query(
    'create temporary table copied_users (old_id bigint, new_id bigint, new_guid uuid) on commit drop',
  );
  const columns = [
    users.map(({ oldId }) => oldId),
    users.map(({ id }) => id),
    users.map(({ guid }) => guid),
  ];

  await client.query(
    'insert into copied_users select * from unnest($1::bigint[], $2::bigint[], $3::uuid[])',
    columns,
  );
  await client.query(`
    alter table activities disable trigger user;
    alter table audit_log disable trigger user;
    update activities set user_id = new_id from copied_users where user_id = old_id;
    update activities set recorded_by = new_id from copied_users where recorded_by = old_id;
    update audit_log set user_id = new_id, user_guid = new_guid from copied_users where user_id = old_id;
    alter table activities enable trigger user;
    alter table audit_log enable trigger user`);
}
