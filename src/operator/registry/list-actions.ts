import type { ControlStatements } from '../../control/installation.ts';
import { isUuid } from '../../lib/http/request/uuid.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { conditionOf, where as whereAll } from '../../lib/postgres/statement.ts';
import { pageOfList } from '../command/list-parts.ts';
import type { ListPage } from '../command/operation.ts';
import type { Action } from './record-action.ts';

/** A recorded change of an operator. */
export interface ActionSummary extends Action {
  id: number;
  /** Login and host. */
  operator: string;
  build: string;
  tenant: string | null;
  state: 'running' | 'done' | 'failed' | 'refused';
  error: string | null;
  startedAt: string;
  finishedAt: string | null;
}

/** The choice of actions for a list; a field that is undefined does not limit it. */
interface ActionFilter {
  /** A slug or a guid. */
  slug?: string | undefined;
  /** A part of login and host. */
  operator?: string | undefined;
  /** The command, or its first words. */
  command?: string | undefined;
  /** Times in ISO 8601: from `since` on, before `until`. */
  since?: string | undefined;
  until?: string | undefined;
  /** The number of an action: only those before it. */
  before?: number | undefined;
  /** True to include the actions that were refused before they changed anything. */
  all?: boolean | undefined;
  limit: number;
}

/** Returns the newest actions that the filter selects, the newest first. */
export async function listActions(
  { statements }: ControlStatements,
  { limit, ...filter }: ActionFilter,
): Promise<ActionSummary[]> {
  const { where, values } = await conditionsOf({ statements }, filter);
  const { rows } = await statements.query<ActionSummary>(
    `select id::float8, operator, build, command, slug, tenant_guid as tenant, arguments, reason, state, error,
            ${isoTime('started_at')} as "startedAt", ${isoTime('finished_at')} as "finishedAt"
       from operator_actions ${where}
      order by operator_actions.id desc limit $${values.push(limit)}`,
    values,
  );

  return rows;
}

/** Returns a part of the actions that the filter selects, and how many there are. */
export async function pageActions(
  control: ControlStatements,
  filter: ActionFilter,
): Promise<ListPage<ActionSummary>> {
  const { before, limit, ...others } = filter;
  const { where, values } = await conditionsOf(control, others);
  const rows = await listActions(control, { ...filter, limit: limit + 1 });
  const { rows: counted } = await control.statements.query<{ total: number; newer: number }>(
    `select count(*)::int as total, count(*) filter (where id >= $${values.push(before ?? null)}::bigint)::int as newer
       from operator_actions ${where}`,
    values,
  );
  const [counts = { total: 0, newer: 0 }] = counted;

  return pageOfList(rows, limit, counts);
}

/** Returns the condition of a filter in SQL, with its values. */
async function conditionsOf(
  control: ControlStatements,
  { slug, operator, command, since, until, before, all }: Omit<ActionFilter, 'limit'>,
) {
  const guid = slug && (await guidOf(control, slug));
  const values: unknown[] = [];
  const where = whereAll(
    [
      conditionOf(guid === undefined ? 'slug = ?' : 'tenant_guid = ?::uuid', guid ?? slug),
      conditionOf('strpos(lower(operator), lower(?)) > 0', operator),
      conditionOf(`starts_with(command || ' ', ?)`, command && `${command} `),
      conditionOf('started_at >= ?::timestamptz', since),
      conditionOf('started_at < ?::timestamptz', until),
      conditionOf('id < ?::bigint', before),
      conditionOf('state <> ?', all ? undefined : 'refused'),
    ],
    values,
  );

  return { where, values };
}

/**
 * Returns the guid of the tenant that has a slug, or had it last: a tenant with another slug
 * than before keeps its log, and one with the slug of another tenant begins an empty log.
 * Returns undefined for a slug that no tenant has had.
 * @param name a slug, or the guid itself
 */
async function guidOf(
  { statements }: ControlStatements,
  name: string,
): Promise<string | undefined> {
  if (isUuid(name)) return name;
  const { rows } = await statements.query<{ guid: string }>(
    'select tenant_guid as guid from tenant_slugs where slug = $1',
    [name],
  );
  const [found] = rows;

  return found?.guid;
}

/** The last run of a command that timers run. */
export type RoutineRun = Pick<
  ActionSummary,
  'command' | 'state' | 'operator' | 'startedAt' | 'error'
>;

/**
 * Returns the last run of each command that has run.
 * @param commands the commands that timers run
 */
export async function lastRoutineRuns(
  { statements }: ControlStatements,
  commands: readonly string[],
): Promise<RoutineRun[]> {
  const { rows } = await statements.query<RoutineRun>(
    `select distinct on (command) command, state, operator, ${isoTime('started_at')} as "startedAt", error
       from operator_actions where command = any (string_to_array($1, ',')) order by command, id desc`,
    [commands.join(',')],
  );

  return rows;
}
