import pg from 'pg';
import { connectionConfig, maxRefusedMs, timeLimits } from '../lib/postgres/connection.ts';
import { removeDeadConnections, tellSilence } from '../lib/postgres/dead-connections.ts';
import { retryRefusedOf } from '../lib/postgres/retry-refused.ts';
import { textTypes } from '../lib/postgres/text-types.ts';
import { atMost } from '../lib/runtime/within.ts';
import type { BudgetMember } from './process-identity.ts';

/**
 * Creates the pool of a process's connections to the control database, which connects on first
 * use. Its statements and its entity managers share it.
 * @param connections maximum number
 * @param member limits the connections further, and names them
 */
export function createControlPool(url: string, connections = 2, member?: BudgetMember): pg.Pool {
  const isCommand = member?.process.kind === 'command';
  const pool = new pg.Pool({
    ...connectionConfig(url, 'control', {}, member?.process.id),
    connectionTimeoutMillis: timeLimits[isCommand ? 'operator' : 'control'].connectMs,
    idleTimeoutMillis: timeLimits.control.idleMs,
    types: textTypes,
  });

  // The running query rejects; without a listener, the error would end the process.
  pool.on('error', () => {});
  pool.on('connect', client => void client.on('error', () => {}));
  removeDeadConnections(pool, timeLimits.control.silenceMs);
  tellSilence(pool);
  retryRefusedOf(pool, {
    maxMs: isCommand ? maxRefusedMs : timeLimits.control.connectMs,
    onRefused: () => member?.onControlRefused(),
  });

  const max = (): number => Math.min(connections, member?.maxControl() ?? connections);
  // The pool reads this before it opens a connection, and when one is released: a connection
  // above the maximum is closed after its use, also while queries wait for one.
  Object.defineProperty(pool.options, 'max', { get: max });
  Object.defineProperty(pool.options, 'maxUses', {
    get: () => (pool.totalCount > max() ? 1 : Infinity),
  });

  return pool;
}

/** Maximum wait for the end of connections to a server that does not answer, in ms. */
const maxEndMs = 1_000;

/**
 * Closes idle connections of a pool until `keep` are open or the others are in use, and waits
 * for their ends.
 */
export async function closeIdleConnections(pool: pg.Pool, keep: number): Promise<void> {
  while (!pool.ending && pool.totalCount > keep && pool.idleCount > 0) {
    const client = await pool.connect();
    const ended = new Promise(resolve => void client.once('end', resolve));
    client.release(true);
    await atMost(ended, maxEndMs);
  }
}
