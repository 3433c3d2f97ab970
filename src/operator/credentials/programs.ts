import { setUserDisabled } from '../../accounts/auth/set-user-disabled.ts';
import { viewOf } from '../../accounts/people/user-statements.ts';
import {
  addKey,
  maxKeys,
  revokeKey,
  revokeKeysMadeBy,
} from '../../accounts/programs/program-keys.ts';
import { addProgram, maxPrograms } from '../../accounts/programs/program-records.ts';
import {
  keyConditions,
  type ProgramFields,
  type ProgramView,
  programById,
  programFields,
} from '../../accounts/programs/program-table.ts';
import type { Installation } from '../../control/installation.ts';
import type { Scope } from '../../control/scopes.ts';
import { fieldErrorsOf } from '../../lib/http/request/field-error-of.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { findTenant } from '../registry/tenants.ts';
import { changePeopleOf } from './change-people-of.ts';
import {
  findProgram,
  listProgramKeys,
  type ProgramKeySummary,
  type ProgramSummary,
} from './read-programs.ts';
import { findUser, requireEntity } from './users.ts';

const dayMs = 24 * 3_600_000;

export interface NewProgram {
  name: string;
  role: string;
  scope: Scope;
  entityId: number | null;
  networks: readonly string[];
}

/** A program as it was added. */
export type AddedProgram = Omit<ProgramSummary, 'state' | 'keys' | 'lastUsedAt'>;

/**
 * Adds a program to a tenant.
 * @param isDryRun true to return the program, and to change nothing
 * @throws {OperatorError} when a field is not acceptable, the role or the entity does not exist,
 *   the tenant has no room, or a former build runs
 */
export async function addProgramTo(
  installation: Installation,
  slug: string,
  program: NewProgram,
  isDryRun = false,
): Promise<AddedProgram> {
  const tenant = await findTenant(installation, slug);
  const fields = requireFields(program);
  const { EntityId: id } = fields;
  const since = id === null ? null : await requireEntity(installation, tenant, id);

  return changePeopleOf(installation, tenant, {
    change: async transaction => {
      const added = await addProgram(transaction, tenant.id, fields, { id, since, errors: {} });
      const { name, text, values } = programById(tenant.id, added);
      return toProgram(viewOf<ProgramView>(await transaction.query(name, text, values)));
    },
    refusals: {
      validation_failed: await noSuchRole(installation, tenant, fields.Role),
      limit_reached: `${slug} has ${maxPrograms} programs, and can have no more`,
      migration_pending: formerBuildRuns,
    },
    isDryRun,
  });
}

const formerBuildRuns =
  'A process of the service runs with a build that does not know programs: nothing was changed. ' +
  'Replace it, and run the command again. Show the processes: bin/backoffice processes';

/** The nouns of the fields of a program whose text an operator chooses. */
const nouns: Readonly<Record<string, string>> = {
  Name: 'name of the program',
  Role: 'role',
  Networks: 'list of networks',
};

/**
 * Returns the fields of a program as they are stored.
 * @throws {OperatorError} when the API would refuse one of them, too
 */
function requireFields({ name, role, scope, entityId, networks }: NewProgram): ProgramFields {
  const fields = {
    Name: name,
    Role: role,
    Scope: scope,
    EntityId: entityId,
    Networks: networks,
  };
  const parsed = programFields.safeParse(fields);
  if (parsed.success) return parsed.data;

  const errors = fieldErrorsOf(programFields, parsed.error.issues, fields);
  const [field = '', [error] = []] = Object.entries(errors)[0] ?? [];
  const member = /^Networks\[(\d+)\]$/.exec(field)?.[1];
  const what = member === undefined ? nouns[field] : `network ${networks[Number(member)]}`;
  throw new OperatorError(`The ${what} ${error?.message}`, { usage: true });
}

/** Returns the message for a role that a tenant does not have, which names its roles. */
async function noSuchRole(
  { statements }: Installation,
  { id, slug }: { readonly id: number; readonly slug: string },
  role: string,
): Promise<string> {
  const { rows } = await statements.query<{ name: string }>(
    'select name from roles where tenant_id = $1 order by lower(name), id',
    [id],
  );
  return `${slug} has no role ${role}. Its roles are ${rows.map(({ name }) => name).join(', ')}`;
}

function toProgram(view: ProgramView | undefined): AddedProgram {
  if (!view) throw new Error('the program that was added is not there');

  const { Id: id, Guid: guid, Name: name, Role: role, Scope: scope, EntityId: entityId } = view;
  return { id, guid, name, role, scope, entityId, networks: view.Networks };
}

/**
 * Disables a program, whose keys are refused from then on, or enables it again. All processes
 * apply it within a second.
 * @param isDryRun true to return the program, and to change nothing
 * @returns the program as it was before
 * @throws {OperatorError} when the tenant has no such program
 */
export async function setProgramDisabled(
  installation: Installation,
  slug: string,
  id: number,
  isDisabled: boolean,
  isDryRun = false,
): Promise<ProgramSummary> {
  const tenant = await findTenant(installation, slug);
  const program = await findProgram(installation, slug, id);

  await changePeopleOf(installation, tenant, {
    change: ({ query }) => setUserDisabled(query, program.id, isDisabled),
    isDryRun,
  });
  return program;
}

/** A key that was added to a program. */
export interface AddedKey {
  id: string;
  /** The key itself, of which only a hash is stored. */
  key: string;
  prefix: string;
  expiresAt: string;
  /** The program before it got the key. */
  program: ProgramSummary;
  /** True if the tenant is isolated: its keys are refused. */
  isIsolated: boolean;
}

/**
 * Adds a key to a program of a tenant.
 * @param days after which it ends
 * @param isDryRun true to return a key that nothing accepts, and to change nothing
 * @throws {OperatorError} when the tenant has no such program, the program has as many valid
 *   keys as it can have, or a former build runs
 */
export async function addKeyTo(
  installation: Installation,
  slug: string,
  programId: number,
  days: number,
  isDryRun = false,
): Promise<AddedKey> {
  const tenant = await findTenant(installation, slug);
  const program = await findProgram(installation, slug, programId);
  const expiresAt = new Date(Date.now() + days * dayMs);

  const added = await changePeopleOf(installation, tenant, {
    change: ({ query }) =>
      addKey(query, { tenantId: tenant.id, programId, madeBy: null, expiresAt }),
    refusals: {
      limit_reached:
        `Program ${programId} (${program.name}) has ${maxKeys} valid keys, and can have no more. ` +
        `List them, and revoke one: bin/backoffice program key list ${slug} ${programId}`,
      migration_pending: formerBuildRuns,
    },
    isDryRun,
  });
  return { ...added, expiresAt: expiresAt.toISOString(), program, isIsolated: tenant.isIsolated };
}

/** Keys that were revoked. */
export interface RevokedKeys {
  /** As they were before. */
  revoked: ProgramKeySummary[];
  /** Their programs that have no other valid key. */
  without: Pick<ProgramSummary, 'id' | 'name'>[];
}

/**
 * Revokes a valid key of a tenant, or all that a user has made. Every process refuses them
 * within a second.
 * @param isDryRun true to return the keys, and to change nothing
 * @throws {OperatorError} when the tenant has no such user or key, or the key has ended or is
 *   revoked
 */
export async function revokeKeys(
  installation: Installation,
  slug: string,
  which: { id: string } | { madeBy: string },
  isDryRun = false,
): Promise<RevokedKeys> {
  const tenant = await findTenant(installation, slug);
  const user = 'id' in which ? undefined : await findUser(installation, slug, which.madeBy);
  const valid = (await listProgramKeys(installation, slug)).filter(
    ({ state }) => state === 'valid',
  );
  const revoked = valid.filter(({ id, madeBy }) =>
    'id' in which ? id === which.id : madeBy === user?.email,
  );
  const [key] = revoked;
  if ('id' in which && !key) {
    throw new OperatorError(
      `${slug} has no valid key ${which.id}. List its keys: bin/backoffice program key list ${slug}`,
    );
  }

  await changePeopleOf(installation, tenant, {
    change: async transaction => {
      if (user) await revokeKeysMadeBy(transaction, tenant.id, user.id);
      else if (key) {
        await revokeKey(transaction.query, keyConditions(tenant.id, key.programId, key.id));
      }
    },
    isDryRun,
  });

  const kept = new Set(
    valid.filter(each => !revoked.includes(each)).map(({ programId }) => programId),
  );
  const programs = new Map(revoked.map(({ programId, program }) => [programId, program]));
  const without = [...programs].filter(([id]) => !kept.has(id)).map(([id, name]) => ({ id, name }));
  return { revoked, without };
}
