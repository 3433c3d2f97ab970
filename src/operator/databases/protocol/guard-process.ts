import { setTimeout as sleep } from 'node:timers/promises';
import type { GuardMessage } from './fence-guard.ts';

/*
 * The process that `createFenceGuard` starts. It acts when the process that started it is gone,
 * and loads what it needs only then: before, it would take CPU time from the requests that wait
 * behind the fence.
 */

/** Maximum time of the retries: a server that was killed may take minutes to recover. */
const maxRetryMs = 15 * 60_000;
const minDelayMs = 500;
/**
 * Maximum pause between two attempts: each takes CPU time, and the server may be away for long.
 */
const maxDelayMs = 5_000;
const protectedSlugs = new Set<string>();

process.on('message', ({ slug, isProtected }: GuardMessage) => {
  if (isProtected) protectedSlugs.add(slug);
  else protectedSlugs.delete(slug);
});
process.on('disconnect', async () => {
  const deadline = performance.now() + maxRetryMs;
  for (
    let delayMs = minDelayMs;
    protectedSlugs.size > 0 && performance.now() < deadline;
    delayMs *= 2
  ) {
    await retreatAll().catch(() => {}); // it is tried again, as while a server restarts
    await sleep(Math.min(delayMs, maxDelayMs));
  }
  process.exit();
});
process.send?.('started', () => {}); // the other process may be gone already

/** Rejects when a tenant could not be put back into service, or its lock is not free yet. */
async function retreatAll(): Promise<void> {
  const { readConfig } = await import('../../../lib/config/config.ts');
  const { openInstallation } = await import('../../../control/installation.ts');
  const installation = await openInstallation(readConfig(), 'command');
  const { retreatTenant } = await import('./retreat-tenant.ts');

  try {
    for (const slug of protectedSlugs) {
      await retreatTenant(installation, slug).then(
        () => protectedSlugs.delete(slug),
        // The retreat is tried again; the other tenants do not wait for its server.
        () => {},
      );
    }
  } finally {
    await installation.close();
  }
}
