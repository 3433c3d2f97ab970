import type { ControlFacts, MoveFacts } from './control-facts.ts';
import { type Finding, toFinding } from './finding.ts';

/** Reports moves of tenants that no process continues, on both servers, and old databases whose time has passed. */
export function checkMoves({ moves, tenants, isBusy }: ControlFacts): Finding[] {
  return moves.flatMap(move => {
    const tenant = tenants.find(({ id }) => id === move.tenantId);
    if (!tenant || isBusy(tenant)) return [];
    return isUnfinished(move) ? unfinished(move, tenant.slug) : overdue(move, tenant.slug);
  });
}

/** True for a move that has not switched the tenant, and has not ended. */
export function isUnfinished({ state }: Pick<MoveFacts, 'state'>): boolean {
  return state !== 'switched' && state !== 'settling';
}

function unfinished({ state, from, to, fromDatabase, toDatabase }: MoveFacts, slug: string): Finding[] {
  const waiting = state === 'fenced' || state === 'verified' ? ', and its requests get 503 meanwhile' : '';
  const isPointed = state === 'verified';
  const remedy =
    `Go on with it: npx backoffice move resume ${slug}` +
    (isPointed ? '' : `. Or give it up: npx backoffice move abort ${slug}`);
  const ofServer = (server: string, part: string): Finding =>
    toFinding(server, {
      check: 'unfinished_move',
      tenant: slug,
      problem: `${slug} is half moved from ${from} to ${to} (${state}), and no process continues${waiting}; ${part}`,
      remedy,
    });
  return [
    ofServer(from, `its ${isPointed ? 'old ' : ''}database here is ${fromDatabase}`),
    ofServer(to, `its new database here, ${toDatabase}, is not ${isPointed ? 'open' : 'used'} yet`),
  ];
}

function overdue({ state, from, fromDatabase, isOverdue }: MoveFacts, slug: string): Finding[] {
  if (!isOverdue && state !== 'settling') return [];
  return [
    toFinding(from, {
      check: 'moved_database',
      tenant: slug,
      problem: `${slug} was moved away, and its old database ${fromDatabase} is still there`,
      remedy: 'Drop the old databases whose time has passed: npx backoffice move settle',
    }),
  ];
}
