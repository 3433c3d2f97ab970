import { createHash } from 'node:crypto';
import type pg from 'pg';
import { noPassword } from '../../auth/passwords.ts';
import { countText } from '../command/texts.ts';

/** What differs between the restored state and a later one, and what holds now. */
export interface Difference {
  /** Of the tenant. */
  readonly slug: string;
  /** The e-mail address of a user, or a role, client or tenant. */
  readonly name: string;
  readonly changes: readonly string[];
}

interface Subject {
  slug: string;
  name: string;
  id: string;
}

interface DifferentRole extends Subject {
  permissions: string[];
  laterPermissions: string[];
}

interface DifferentPerson extends Subject {
  tenantId: string;
  isDisabled: boolean;
  laterIsDisabled: boolean;
  role: string;
  laterRole: string;
  roleId: string;
  laterRoleId: string;
  permissions: string[];
  laterPermissions: string[];
  scope: string;
  laterScope: string;
  entityId: string | null;
  laterEntityId: string | null;
  isPasswordReplaced: boolean;
}

/** Selects the people and roles of a control database as JSON texts, without hashes of passwords. */
export const peopleAsJson = `
  (select coalesce(json_agg(json_build_object('tenant', t.guid, 'id', r.id, 'permissions', r.permissions)), '[]')
     from roles r join tenants t on t.id = r.tenant_id)::text as roles,
  (select coalesce(json_agg(json_build_object('guid', u.guid, 'disabled', u.disabled_at is not null, 'role', r.name,
            'role_id', r.id, 'permissions', r.permissions, 'scope', u.scope, 'entity_id', u.entity_id,
            'password', encode(sha256(convert_to(u.password_hash, 'UTF8')), 'hex'))), '[]')
     from users u join roles r on r.id = u.role_id)::text as people`;

const differentRoles = `
  select t.slug, r.id, r.name, r.permissions, l.permissions as "laterPermissions"
    from json_to_recordset($1::json) as l (tenant uuid, id bigint, permissions text[])
    join tenants t on t.guid = l.tenant join roles r on r.tenant_id = t.id and r.id = l.id
   where not (r.permissions <@ l.permissions and r.permissions @> l.permissions) order by t.slug, r.name`;
const differentPeople = `
  select t.slug, t.id as "tenantId", u.id, u.email as name, u.disabled_at is not null as "isDisabled",
         l.disabled as "laterIsDisabled", r.name as role, l.role as "laterRole", r.id as "roleId", l.role_id as "laterRoleId",
         r.permissions, l.permissions as "laterPermissions", u.scope, l.scope as "laterScope", u.entity_id as "entityId",
         l.entity_id as "laterEntityId", w.replaced as "isPasswordReplaced"
    from json_to_recordset($1::json) as l (guid uuid, disabled boolean, role text, role_id bigint, permissions text[],
                                           scope text, entity_id bigint, password text)
    join users u on u.guid = l.guid join tenants t on t.id = u.tenant_id join roles r on r.id = u.role_id
   cross join lateral (select encode(sha256(convert_to(u.password_hash, 'UTF8')), 'hex') <> l.password as replaced) w
   where (u.disabled_at is not null) <> l.disabled or r.id <> l.role_id or u.scope <> l.scope
      or u.entity_id is distinct from l.entity_id or w.replaced
   order by t.slug, u.email`;

/**
 * Where the restored people and roles differ from those of a later control database, leaves what both have: the common
 * permissions, the scope Self, no entity, disabled. A password that was replaced is none: its user needs a reset. A
 * hash that a login renewed, because a newer build has other parameters, counts as replaced.
 */
export async function narrowPeople(
  client: pg.Client,
  later: { readonly roles: string; readonly people: string },
): Promise<Difference[]> {
  const differences: Difference[] = [];
  const { rows: roles } = await client.query<DifferentRole>(differentRoles, [later.roles]);
  for (const { id, slug, name, permissions, laterPermissions } of roles) {
    const common = commonOf(permissions, laterPermissions);
    await client.query('update roles set permissions = $2 where id = $1', [id, common]);
    differences.push({
      slug,
      name: `role ${name}`,
      changes: [changeText('permissions', permissions, laterPermissions, common)],
    });
  }
  const { rows: people } = await client.query<DifferentPerson>(differentPeople, [later.people]);
  for (const person of people) {
    const changes = await narrowPerson(client, person);
    differences.push({ slug: person.slug, name: person.name, changes });
  }
  return differences;
}

async function narrowPerson(client: pg.Client, person: DifferentPerson): Promise<string[]> {
  const { id, scope, laterScope, entityId, laterEntityId, isPasswordReplaced } = person;
  const changes: string[] = [];
  let roleId = person.roleId;
  if (roleId !== person.laterRoleId) {
    const role = await findCommonRole(client, person);
    roleId = role.id;
    changes.push(changeText('role', person.role, person.laterRole, role.name));
  }
  if (scope !== laterScope) changes.push(changeText('scope', scope, laterScope, 'Self'));
  if (entityId !== laterEntityId) changes.push(changeText('entity', entityId, laterEntityId, null));
  if (isPasswordReplaced) changes.push('password replaced later: none, until a reset');
  if (person.isDisabled !== person.laterIsDisabled)
    changes.push(person.isDisabled ? 'enabled later: stays disabled' : 'disabled later: disabled');
  await client.query(
    `update users set role_id = $2, scope = $3, entity_id = $4, password_hash = case when $5 then $6 else password_hash end
      where id = $1`,
    [
      id,
      roleId,
      scope === laterScope ? scope : 'Self',
      entityId === laterEntityId ? entityId : null,
      isPasswordReplaced,
      noPassword,
    ],
  );
  return changes;
}

/** Returns a role with the permissions that both roles of a person have: one of the two, or a role for them. */
async function findCommonRole(
  client: pg.Client,
  { tenantId, role, roleId, laterRoleId, permissions, laterPermissions }: DifferentPerson,
): Promise<{ id: string; name: string }> {
  const common = commonOf(permissions, laterPermissions);
  if (common.length === permissions.length) return { id: roleId, name: role };
  const name = `Restored ${createHash('sha256').update(common.join()).digest('hex').slice(0, 8)}`;
  const { rows } = await client.query<{ id: string; name: string }>(
    `select id, name from roles
      where tenant_id = $1 and (id = $2 or name = $3) and permissions <@ $4::text[] and permissions @> $4::text[]
      order by id = $2 desc limit 1`,
    [tenantId, laterRoleId, name, common],
  );
  if (rows[0]) return rows[0];
  const added = await client.query<{ id: string; name: string }>(
    'insert into roles (tenant_id, name, permissions) values ($1, $2, $3) returning id, name',
    [tenantId, name, common],
  );
  return added.rows[0] ?? { id: roleId, name: role };
}

function commonOf(permissions: readonly string[], others: readonly string[]): string[] {
  return permissions.filter(permission => others.includes(permission));
}

type Value = string | readonly string[] | null;

function changeText(field: string, restored: Value, later: Value, now: Value): string {
  const text = (value: Value): string => (typeof value === 'string' ? value : value?.join(', ') || 'none');
  return `${field} ${text(restored)}, later ${text(later)}: ${text(now)}`;
}

/** More lines would hide the rest of the output; the document has all. */
const maxLines = 100;

/** Describes what differed between the restored state and the later one, and what holds now; '' when nothing did. */
export function differencesText(differences: readonly Difference[]): string {
  if (differences.length === 0) return '';
  const lines = differences.map(({ slug, name, changes }) => `  ${slug} ${name}: ${changes.join('; ')}`);
  const more = lines.length - maxLines;
  return [
    `Differs in the later state, in ${countText(differences.length, 'place')}. The narrower holds:`,
    ...lines.slice(0, maxLines),
    ...(more > 0 ? [`  … and ${more} more, which --json prints`] : []),
    'Give back what is right: bin/backoffice user role, and the rest as an administrator of the tenant.',
    'Users without a password reset it, or: bin/backoffice user password',
  ].join('\n');
}
