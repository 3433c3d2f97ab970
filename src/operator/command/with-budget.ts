import type { Installation } from '../../installation.ts';

/** Runs the work of an operation within `CONNECTION_BUDGET`, as far as the control database is there already. */
export async function withBudget<T>(
  installation: Installation,
  warn: (message: string) => void,
  work: () => Promise<T>,
): Promise<T> {
  const { readConfig } = await import('../../config/config.ts');
  const { withConnectionBudget } = await import('./command-connections.ts');
  return withConnectionBudget(installation, readConfig().connectionBudget, warn, work);
}
