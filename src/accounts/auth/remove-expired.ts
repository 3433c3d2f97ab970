/** Runs a statement: an entity manager, or a query of a transaction. */
interface Executor {
  execute(text: string): Promise<unknown>;
}

/** Rows removed at a time. An insert adds only one, so the table does not grow. */
const batch = 100;

/** Deletes some expired legacy tokens. Skips rows that another transaction is using. */
export async function removeExpired(em: Executor): Promise<void> {
  await em.execute(
    `delete from legacy_tokens where hash in (
       select hash from legacy_tokens where expires_at <= now() order by expires_at limit ${batch} for update skip locked)`,
  );
}
