import type { Config } from '../../config/config.ts';
import { type OpenControl, openAccess } from '../../installation.ts';
import { operatorPool } from '../../postgres/connection.ts';
import { statementsOf } from '../../postgres/statements.ts';

/** One connection at a time: a command of an emergency finds no second one. */
const connections = 1;

/** Opens the control database without its entity manager, which takes 0.3 s of CPU time. */
export async function openControl(config: Config): Promise<OpenControl> {
  const access = await openAccess(config);
  const pool = operatorPool(access.controlUrl, connections);

  return {
    ...access,
    statements: statementsOf(pool),
    pool: async () => pool,
    close: async () => {
      await pool.end();
      await access.close();
    },
  };
}
