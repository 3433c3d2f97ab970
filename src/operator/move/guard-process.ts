import { setTimeout as sleep } from 'node:timers/promises';
import { readConfig } from '../../config.ts';
import { openInstallation } from '../../installation.ts';
import { withConnectionBudget } from '../command-connections.ts';
import type { GuardMessage } from './move-guard.ts';
import { retreatMove } from './moves.ts';

/** The process that `createMoveGuard` starts. It acts when the process that started it is gone. */

/** A server that was killed may take minutes to recover. */
const maxRetryMs = 15 * 60_000;
const retryMs = 500;
const slugs = new Set<string>();

process.on('message', ({ slug, isProtected }: GuardMessage) => {
  if (isProtected) slugs.add(slug);
  else slugs.delete(slug);
});
process.on('disconnect', async () => {
  for (const deadline = Date.now() + maxRetryMs; slugs.size > 0 && Date.now() < deadline; await sleep(retryMs))
    await retreatAll().catch(() => {}); // as while a server restarts
  process.exit();
});

/** Rejects when a tenant could not be put back into service, or its lock is not free yet. */
async function retreatAll(): Promise<void> {
  const config = readConfig();
  const installation = await openInstallation(config, 'command');
  const retreat = async (): Promise<void> => {
    for (const slug of slugs) {
      await retreatMove(installation, slug);
      slugs.delete(slug);
    }
  };
  await withConnectionBudget(installation, config.connectionBudget, () => {}, retreat).finally(installation.close);
}
