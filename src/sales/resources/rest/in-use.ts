import { sqlState } from '../../../lib/postgres/database-error.ts';
import type { Condition } from '../../../lib/postgres/statement.ts';
import { hasCode, type Problem, problem, type ReferenceCount } from '../../../lib/problems.ts';
import { snakeCase } from '../../../lib/runtime/casing.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { Referrer } from './references.ts';
import { recordsVisibleTo } from './resource-access.ts';
import type { ResourceDefinition } from './resource-definition.ts';

const foreignKeyViolation = '23503';
/** Maximum records of a kind that are counted. */
const maxCount = 1_000_000;

/** True for the error of a record that cannot be deleted, because others refer to it. */
export function isInUse(error: unknown): boolean {
  return sqlState(error) === foreignKeyViolation || hasCode(error, 'in_use');
}

/** Returns the problem of a record that others refer to, with the numbers of those. */
export async function inUseProblem(
  { referrers }: ResourceDefinition,
  key: unknown,
  context: RequestContext,
  cause: unknown,
): Promise<Problem> {
  const references: ReferenceCount[] = [];
  for (const { resource, count } of referrers) {
    const found = await count(key, context);
    if (found > 0) references.push({ resource, count: found });
  }

  const hidden =
    'What refers to it is nothing that you may read, or a setting such as the default status.';
  return problem('in_use', {
    references,
    ...(references.length === 0 ? { detail: hidden } : {}),
    cause,
  });
}

/** Lets the resources that a resource refers to know of it. */
export function addReferrers(resource: ResourceDefinition): void {
  for (const [property, { to }] of Object.entries(resource.references ?? {})) {
    to.referrers.push(referrerOf(resource, property));
  }
}

/** Counts the records of a resource that refer to a record, and that the caller may read. */
function referrerOf(resource: ResourceDefinition, property: string): Referrer {
  const { name, access, table, namesEntities } = resource;
  const column = snakeCase(property);
  const names: (key: unknown) => Condition = key =>
    property === namesEntities ? [`${column} @> array[?]::bigint[]`, key] : [`${column} = ?`, key];

  return {
    resource: name,
    count: async (key, context) => {
      const { caller } = context;
      const needed = caller.scope === 'Self' ? (access.readOfSelf ?? access.read) : access.read;
      if (needed !== 'user' && !caller.permissions.has(needed)) return 0;

      const visible = recordsVisibleTo(resource, caller, { includeDeleted: true });
      const [row] = await context.read(table.selectCount([names(key), ...visible], maxCount));
      return Number(row?.count ?? 0);
    },
  };
}
