import type { ControlStatements } from '../../control/installation.ts';
import { isValidKey } from '../../control/key-lifetime.ts';
import type { Scope } from '../../control/scopes.ts';
import { nameOfUser } from '../../control/user-kinds.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { readTenant } from '../registry/read-tenants.ts';

/** A program as the command line shows it. */
export interface ProgramSummary {
  /** The number by which commands and the API name it. */
  id: number;
  /** The client id of tools that speak OAuth only. */
  guid: string;
  name: string;
  role: string;
  scope: Scope;
  entityId: number | null;
  /** The networks from which its keys are accepted; empty: from everywhere. */
  networks: string[];
  state: 'active' | 'disabled';
  /** The number of its valid keys. */
  keys: number;
  /** The hour in which one of its keys was last used. */
  lastUsedAt: string | null;
}

/** Returns the programs of a tenant, ordered by name. */
export async function listPrograms(
  { statements }: ControlStatements,
  slug: string,
): Promise<ProgramSummary[]> {
  const { id } = await readTenant({ statements }, slug);
  const { rows } = await statements.query<ProgramSummary>(
    `select u.id::float8 as id, u.guid, u.first_name as name, r.name as role, u.scope, u.entity_id::float8 as "entityId",
            u.networks::text[] as networks, case when u.disabled_at is null then 'active' else 'disabled' end as state,
            (count(k.id) filter (where ${isValidKey}))::int as keys, ${isoTime('max(k.last_used_at)')} as "lastUsedAt"
       from users u join roles r on r.id = u.role_id
       left join program_keys k on k.program_id = u.id and k.tenant_id = u.tenant_id
      where u.tenant_id = $1 and u.kind = 'program' group by u.id, r.name order by u.first_name, u.id`,
    [id],
  );

  return rows;
}

/** @throws {OperatorError} when the tenant has no such program */
export async function findProgram(
  control: ControlStatements,
  slug: string,
  id: number,
): Promise<ProgramSummary> {
  const program = (await listPrograms(control, slug)).find(each => each.id === id);
  if (program) return program;

  throw new OperatorError(
    `${slug} has no program ${id}. List its programs: bin/backoffice program list ${slug}`,
  );
}

/** A key of a program, without the key itself. */
export interface ProgramKeySummary {
  id: string;
  programId: number;
  /** The name of the program. */
  program: string;
  /** The first characters of the key, by which people recognise it. */
  prefix: string;
  state: 'valid' | 'ended' | 'revoked';
  /** The user who has made it; null: an operator. */
  madeBy: string | null;
  createdAt: string;
  expiresAt: string;
  /** The hour in which it was last used. */
  lastUsedAt: string | null;
}

const keyColumns = `
  k.id, k.program_id::float8 as "programId", u.first_name as program, k.prefix,
  case when ${isValidKey} then 'valid' when k.revoked_at is null then 'ended' else 'revoked' end as state,
  case when k.made_by is not null then coalesce(${nameOfUser('m')}, 'user ' || k.made_by) end as "madeBy",
  ${isoTime('k.created_at')} as "createdAt", ${isoTime('k.expires_at')} as "expiresAt",
  ${isoTime('k.last_used_at')} as "lastUsedAt"`;
const keysOfPrograms = `
  program_keys k join users u on u.id = k.program_id and u.tenant_id = k.tenant_id
  left join users m on m.id = k.made_by and m.tenant_id = k.tenant_id`;

/** Returns the keys of the programs of a tenant, or of one of them, the newest first. */
export async function listProgramKeys(
  control: ControlStatements,
  slug: string,
  programId?: number,
): Promise<ProgramKeySummary[]> {
  const { id } = await readTenant(control, slug);
  if (programId !== undefined) await findProgram(control, slug, programId);

  const { rows } = await control.statements.query<ProgramKeySummary>(
    `select ${keyColumns} from ${keysOfPrograms}
      where k.tenant_id = $1 and ($2::bigint is null or k.program_id = $2) order by k.created_at desc, k.id`,
    [id, programId ?? null],
  );

  return rows;
}

/** A key of a program of any tenant. */
export interface FoundKey extends ProgramKeySummary {
  /** The slug of the tenant. */
  tenant: string;
}

/** Returns the keys of all tenants that have a prefix, ordered by tenant. */
export async function findProgramKeys(
  { statements }: ControlStatements,
  prefix: string,
): Promise<FoundKey[]> {
  const { rows } = await statements.query<FoundKey>(
    `select t.slug as tenant, ${keyColumns} from ${keysOfPrograms} join tenants t on t.id = k.tenant_id
      where k.prefix = $1 order by t.slug, k.created_at desc, k.id`,
    [prefix],
  );

  return rows;
}

/** Returns the number of valid keys that a user of a tenant has made, by the address. */
export async function countKeysMadeBy(
  control: ControlStatements,
  slug: string,
  email: string,
): Promise<number> {
  const keys = await listProgramKeys(control, slug);
  return keys.filter(({ state, madeBy }) => state === 'valid' && madeBy === email).length;
}
