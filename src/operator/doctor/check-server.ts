import type { Server, Tenant } from '../../control/fleet-entities.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import { quoteIdentifier as quote, quoteLiteral } from '../../postgres/quote.ts';
import { isPhysicalName, warmName, warmNumber } from '../provisioning/physical-names.ts';
import { ownedBy } from '../provisioning/tenant-database.ts';
import { oldTemplate, tenantGroup } from '../schema/template.ts';
import type { ControlFacts } from './check-control.ts';
import type { Finding } from './finding.ts';
import type { DatabaseFacts, RoleFacts, ServerFacts } from './server-facts.ts';

interface CheckContext {
  server: Server;
  tenants: Tenant[];
  facts: ServerFacts;
  add: (check: Finding['check'], tenant: string | null, problem: string, remedy: string, statements?: string[]) => void;
}

const repeated = 'doctor --fix does it';

/** Compares the databases and roles of one server with what the control database knows, and with the rights they should have. */
export function checkServer(
  server: Server,
  control: ControlFacts,
  facts: ServerFacts,
  secrets: SecretBox,
  digest: string,
): Finding[] {
  const findings: Finding[] = [];
  const tenants = control.tenants.filter(tenant => tenant.server.id === server.id);
  const add: CheckContext['add'] = (check, tenant, problem, remedy, statements) =>
    findings.push({
      check,
      server: server.name,
      tenant,
      problem,
      remedy: statements ? `${remedy}: ${repeated}` : remedy,
      ...(statements ? { repair: { statements } } : {}),
    });
  const scene = { server, tenants, facts, add };
  for (const tenant of tenants) {
    // What is only being made is not judged; that nobody is at it is found elsewhere.
    if (tenant.status === 'provisioning' || control.underWork(tenant)) continue;
    examineDatabaseOf(tenant, scene);
    examineRoleOf(tenant, scene, secrets);
  }
  examineStrangers(scene, control.warm);
  for (const id of control.ready.get(server.id) ?? []) {
    const name = warmName(server, id);
    if (!facts.databases.some(database => database.name === name && !database.broken))
      add('missing_database', null, `the warm database ${name} is missing`, 'pool fill makes another');
  }
  if (control.unfinished.has(server.id))
    add('warm_leftover', null, 'there are warm databases that are half made', 'pool fill makes them anew');
  for (const { name } of facts.databases)
    if (oldTemplate(server, name, digest))
      add(
        'old_template',
        null,
        `${name} is what another build made new tenants from`,
        'drop it when that build is gone',
        [`drop database if exists ${quote(name)}`],
      );
  examinePublicAccess(scene);
  examineGroup(scene, control.warm);
  return findings;
}

function examineDatabaseOf({ slug, databaseName: name, status }: Tenant, { facts, add }: CheckContext): void {
  const database = facts.databases.find(each => each.name === name);
  const gone = status === 'deleted' ? `purge ${slug}, or restore ${name} from a backup` : 'restore it from a backup';
  if (!database) add('missing_database', slug, `the database ${name} is missing`, gone);
  else if (database.broken) add('half_dropped_database', slug, `${name} is half dropped, and cannot be used`, gone);
  else if (!database.open)
    add(
      'closed_database',
      slug,
      `${name} takes no connections`,
      `when nobody wants it so: alter database ${quote(name)} allow_connections true`,
    );
}

function examineRoleOf(tenant: Tenant, scene: CheckContext, secrets: SecretBox): void {
  const { slug, databaseName, roleName } = tenant;
  const { facts, add, server } = scene;
  const group = tenantGroup(server);
  const database = facts.databases.find(each => each.name === databaseName);
  const mine = database?.rights.filter(({ grantee }) => grantee === roleName).map(({ privilege }) => privilege) ?? [];
  const connect = `grant connect on database ${quote(databaseName)} to ${quote(roleName)}`;
  const role = facts.roles.get(roleName);
  if (!role) {
    const password = openPassword(tenant, secrets);
    const make =
      password === undefined
        ? undefined
        : [
            `create role ${quote(roleName)} login password ${quoteLiteral(password)}`,
            ownedBy(tenant),
            `grant ${quote(group)} to ${quote(roleName)}`,
            ...(database ? [connect] : []),
          ];
    add('missing_role', slug, `the login role ${roleName} is missing`, 'make it with the password that is known', make);
    return;
  }
  examinePowers(role, [group], slug, scene);
  if (!role.login)
    add('missing_rights', slug, `${roleName} may not log in`, 'let it', [`alter role ${quote(roleName)} login`]);
  if (!role.groups.includes(group))
    add('missing_rights', slug, `${roleName} is not in the group ${group}`, 'put it there', [
      `grant ${quote(group)} to ${quote(roleName)}`,
    ]);
  if (database && !mine.includes('CONNECT'))
    add('missing_rights', slug, `${roleName} may not connect to ${databaseName}`, 'let it', [connect]);
  const excess = mine.filter(privilege => privilege !== 'CONNECT');
  if (excess.length > 0)
    add('excess_rights', slug, `${roleName} has ${excess.join(', ')} on ${databaseName}`, 'take that from it', [
      `revoke ${excess.join(', ')} on database ${quote(databaseName)} from ${quote(roleName)}`,
    ]);
  for (const { name, rights } of facts.databases) {
    if (name === databaseName || !rights.some(({ grantee }) => grantee === roleName)) continue;
    add('excess_rights', slug, `${roleName} has rights on the database ${name}`, 'take them from it', [
      `revoke all on database ${quote(name)} from ${quote(roleName)}`,
    ]);
  }
  for (const where of role.granted.filter(name => name !== databaseName))
    add(
      'excess_rights',
      slug,
      `${roleName} has rights inside ${where ?? 'what all databases share'}`,
      `look what for, and revoke them there`,
    );
}

/** A role that tenants log in as, or their group: no attributes, owns nothing, member of what is named and nothing else. */
function examinePowers(role: RoleFacts, groups: string[], slug: string | null, { add }: CheckContext): void {
  const { name, powers, owns } = role;
  if (powers.length > 0)
    add('excess_rights', slug, `${name} is ${powers.join(', ')}`, 'take that from it', [
      `alter role ${quote(name)} ${powers.map(power => `no${power}`).join(' ')}`,
    ]);
  for (const group of role.groups.filter(each => !groups.includes(each)))
    add('excess_rights', slug, `${name} is a member of ${group}`, 'take it out', [
      `revoke ${quote(group)} from ${quote(name)}`,
    ]);
  for (const where of owns)
    add(
      'excess_rights',
      slug,
      `${name} owns something in ${where ?? 'what all databases share'}`,
      'give it another owner',
    );
}

/** Databases and roles that are named as ours are, and that no tenant has. */
function examineStrangers({ server, tenants, facts, add }: CheckContext, warm: Set<number>): void {
  const databases = new Set(tenants.map(({ databaseName }) => databaseName));
  const roles = new Set(tenants.map(({ roleName }) => roleName));
  const isWarm = (name: string) => warm.has(warmNumber(server, name) ?? Number.NaN);
  const dropped = new Set<string>();
  for (const database of facts.databases) {
    const { name, broken } = database;
    if (databases.has(name) || isWarm(name) || !isPhysicalName(server, name)) continue;
    const drop = `drop database if exists ${quote(name)}`;
    if (isWarmLeftover(server, database)) {
      dropped.add(name);
      const role = facts.roles.has(name) ? [`drop role if exists ${quote(name)}`] : [];
      add('warm_leftover', null, `${name} waits for a tenant, and is not in the books`, 'drop it', [drop, ...role]);
    } else if (broken) {
      add('half_dropped_database', null, `${name} is half dropped, and no tenant has it`, 'drop it', [drop]);
    } else {
      add('orphan_database', null, `no tenant has the database ${name}`, `find out whose it is, then drop it by hand`);
    }
  }
  for (const { name } of facts.roles.values()) {
    if (roles.has(name) || isWarm(name) || !isPhysicalName(server, name) || dropped.has(name)) continue;
    if (warmNumber(server, name) !== undefined && !facts.databases.some(database => database.name === name))
      add('warm_leftover', null, `the role ${name} waits for a tenant, and is not in the books`, 'drop it', [
        `drop role if exists ${quote(name)}`,
      ]);
    else add('orphan_role', null, `no tenant has the login role ${name}`, `find out whose it is, then drop it by hand`);
  }
}

/** A warm database is closed until it is claimed; an open one of such a name holds somebody's data. */
export function isWarmLeftover(server: Server, { name, open, broken }: DatabaseFacts): boolean {
  return warmNumber(server, name) !== undefined && (!open || broken);
}

/** What everybody may, a tenant's role may too. */
function examinePublicAccess({ server, tenants, facts, add }: CheckContext): void {
  const slugs = new Map(tenants.map(({ databaseName, slug }) => [databaseName, slug]));
  for (const { name, rights, open, broken } of facts.databases) {
    const everybody = rights.filter(({ grantee }) => grantee === 'public').map(({ privilege }) => privilege);
    if (everybody.length === 0 || broken || !open) continue;
    const slug = slugs.get(name) ?? null;
    const problem = `every login of the server has ${everybody.join(', ')} on ${name}`;
    const revoke = `revoke all on database ${quote(name)} from public`;
    const ours = slug !== null || isPhysicalName(server, name);
    if (ours) add('public_access', slug, problem, 'revoke it', [revoke]);
    else if (everybody.includes('CONNECT'))
      add('public_access', null, problem, `when nothing else needs it: ${revoke}`);
  }
}

function examineGroup(scene: CheckContext, warm: Set<number>): void {
  const { server, tenants, facts, add } = scene;
  const group = tenantGroup(server);
  const role = facts.roles.get(group);
  if (!role) return;
  examinePowers(role, [], null, scene);
  if (role.login)
    add('excess_rights', null, `the group ${group} may log in`, 'forbid it', [`alter role ${quote(group)} nologin`]);
  for (const { name, rights } of facts.databases)
    if (rights.some(({ grantee }) => grantee === group))
      add('excess_rights', null, `all tenants have rights on the database ${name}`, 'revoke them', [
        `revoke all on database ${quote(name)} from ${quote(group)}`,
      ]);
  const roles = new Set(tenants.map(({ roleName }) => roleName));
  for (const member of facts.members.get(group) ?? []) {
    if (roles.has(member) || warm.has(warmNumber(server, member) ?? Number.NaN) || isPhysicalName(server, member))
      continue;
    add('excess_rights', null, `${member} has what tenants have`, 'take it out of their group', [
      `revoke ${quote(group)} from ${quote(member)}`,
    ]);
  }
}

function openPassword({ rolePassword, guid }: Tenant, secrets: SecretBox): string | undefined {
  try {
    return secrets.open(rolePassword, owners.rolePassword(guid)).toString();
  } catch {
    return undefined;
  }
}
