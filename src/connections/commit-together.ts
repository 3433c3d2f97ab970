import { outcomeUnknown } from '../errors.ts';
import { mayBeCommitted } from '../postgres/commit-outcome.ts';
import type { RowValues, Statement } from '../postgres/statement.ts';
import type { TenantClient } from './tenant-client.ts';

/** A statement that waits for a lock longer than this, in ms, does not hold up the others of its transaction. */
const lockTimeoutMs = 50;
const begin = `begin; set local lock_timeout = ${lockTimeoutMs}`;

/**
 * Executes statements, each of which sets its actor, in one transaction and one packet.
 * @returns the rows of each statement; undefined when one of them failed, so that none has changed anything
 * @throws {Problem} `outcomeUnknown` when the commit may have taken effect without a confirmation
 */
export async function commitTogether(
  client: TenantClient,
  statements: readonly Statement[],
): Promise<RowValues[][] | undefined> {
  const wasAlive = client.isAlive;
  const rows: RowValues[][] = statements.map(() => []);
  let executed = 0;
  let isBegun = false;
  let isCommitted = false;
  const send = () => [
    client.query(begin).then(() => (isBegun = true)),
    ...statements.map(async (statement, index) => {
      rows[index] = await client.rows(statement);
      executed++;
    }),
    client.query('commit').then(({ command }) => (isCommitted = command === 'COMMIT')),
  ];
  try {
    await client.sendTogether(send);
  } catch (error) {
    if (!wasAlive) throw error;
    // If `begin` alone failed, each statement that was executed has been a transaction by itself.
    const isUncertain = !isBegun && executed > 0;
    if (isUncertain || mayBeCommitted(error, executed === statements.length)) throw outcomeUnknown(error);
    return undefined;
  }
  if (!isCommitted) throw new Error('the transaction had failed and was rolled back');
  return rows;
}
