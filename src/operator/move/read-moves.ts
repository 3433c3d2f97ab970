import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import type { Statements } from '../../postgres/statements.ts';
import type { MoveState } from './move-protocol.ts';

/** A move as the command line shows it. */
export interface MoveSummary {
  id: number;
  slug: string;
  from: string;
  to: string;
  state: MoveState;
  rows: number | null;
  bytes: number | null;
  /** How long requests waited, in ms. */
  pauseMs: number | null;
  switchedAt: string | null;
  /** Until then `--back` is possible; null when the old database is gone. */
  reversibleUntil: string | null;
  oldDatabase: string;
  newDatabase: string;
  error: string | null;
}

const summaries = `
  select m.id::float8, t.slug, f.name as from, s.name as to, m.state, m.rows::float8, m.bytes::float8,
         m.pause_ms as "pauseMs", ${isoTime('m.switched_at')} as "switchedAt",
         ${isoTime('m.reversible_until')} as "reversibleUntil",
         from_database as "oldDatabase", to_database as "newDatabase", m.error
    from tenant_moves m join tenants t on t.id = tenant_id
    join servers f on f.id = from_server_id join servers s on s.id = to_server_id`;

/** Returns the moves, the newest first; all that are not ended, and the others up to `limit`. */
export async function listMoves(
  { statements }: { readonly statements: Statements },
  limit = 50,
): Promise<MoveSummary[]> {
  return statements.execute(
    `${summaries} where state not in ('settled', 'aborted')
        or m.id in (select id from tenant_moves order by id desc limit ${limit}) order by m.id desc`,
  );
}

/** @throws {OperatorError} when there is no such move */
export async function readMove({ statements }: Installation, id: number): Promise<MoveSummary> {
  const [move] = await statements.execute<MoveSummary[]>(`${summaries} where m.id = ?`, [id]);
  if (!move) throw new OperatorError(`there is no move ${id}`);
  return move;
}

/** @throws {OperatorError} when the tenant has no move that has neither ended nor switched */
export async function readUnfinishedMove({ statements }: Installation, slug: string): Promise<MoveSummary> {
  const [move] = await statements.execute<MoveSummary[]>(
    `${summaries} where t.slug = ? and state not in ('switched', 'settling', 'settled', 'aborted')`,
    [slug],
  );
  if (!move) throw noUnfinishedMove(slug);
  return move;
}

/** Returns the command that ends a move, after which the tenant has one database. */
export function commandToEnd(state: MoveState, slug: string): string {
  const verb = { switched: 'settle', settling: 'settle', verified: 'resume' }[state as string] ?? 'abort';
  return `npx backoffice move ${verb} ${slug}`;
}

export function noUnfinishedMove(slug: string): OperatorError {
  return new OperatorError(`${slug} has no unfinished move. See its moves: npx backoffice move list`);
}

/**
 * Returns the moves whose old database can be dropped.
 * @param slug of the tenant whose old databases can be dropped at once; without it, those whose time has passed
 */
export async function movesToSettle(
  { statements }: { readonly statements: Statements },
  slug: string | undefined,
): Promise<MoveSummary[]> {
  const [condition, values] =
    slug === undefined
      ? [`state = 'settling' or state = 'switched' and reversible_until < now()`, []]
      : [`state in ('switched', 'settling') and t.slug = ?`, [slug]];
  return statements.execute(`${summaries} where ${condition} order by t.slug, m.id`, values);
}

/** Returns the slugs of tenants that have an old database whose time has passed. */
export async function slugsToSettle(control: { readonly statements: Statements }): Promise<string[]> {
  return [...new Set((await movesToSettle(control, undefined)).map(({ slug }) => slug))];
}
