import { Beat } from '../../control/beat.ts';
import type { Installation } from '../../control/installation.ts';
import { newProcess } from '../../control/process-identity.ts';

const noLog = { info: () => {}, warn: () => {} };

/** Runs the work of a command, which beats meanwhile, so that `processes` knows of it. */
export async function beating<T>(
  { pool, secrets, config, member }: Installation,
  work: () => Promise<T>,
): Promise<T> {
  const beat = new Beat({
    pool,
    process: member?.process ?? newProcess('command'),
    budget: config.connectionBudget,
    secrets,
    log: noLog,
  });
  await beat.join().catch(() => {}); // a control database that takes no write can still be read

  try {
    return await work();
  } finally {
    await beat.leave();
  }
}
