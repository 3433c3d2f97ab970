import type { QueryControl } from './database.ts';

/** Names who makes the changes of a transaction, for the audit log. @param actor `RequestContext.actor` */
export async function setActor(query: QueryControl, actor: string): Promise<void> {
  await query('set_actor', `select set_config('app.actor', $1, true)`, [actor]);
}
