import { requireOwnSession, SharedSessionError } from '../../postgres/session-probe.ts';
import type { Report } from './finding.ts';

/** Finds a pooler in transaction or statement mode between this process and a server. */
export async function findSharedSessions(url: string): Promise<Report | undefined> {
  try {
    await requireOwnSession(url);
    return undefined;
  } catch (error) {
    if (!(error instanceof SharedSessionError)) throw error;
    const problem =
      'the URL of the server leads to a pooler in transaction or statement mode, which gives locks, settings and ' +
      'notifications of one session to another';
    const remedy =
      'Connect to the server directly, or set the pooler to session mode. None of its tenants was checked.';
    return { check: 'shared_sessions', problem, remedy };
  }
}
