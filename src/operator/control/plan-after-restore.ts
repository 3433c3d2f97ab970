import type { Statements } from '../../postgres/statements.ts';

/** What `afterRestore` ends. */
interface AfterRestorePlan {
  sessions: number;
  keys: number;
  /** Legacy tokens. */
  tokens: number;
}

/** Returns what `afterRestore` would end, and changes nothing. */
export async function planAfterRestore({ statements }: { readonly statements: Statements }): Promise<AfterRestorePlan> {
  const [plan] = await statements.execute<AfterRestorePlan[]>(
    `select (select count(*)::int from sessions where revoked_at is null) as sessions,
            (select count(*)::int from signing_keys where status <> 'disabled') as keys,
            (select count(*)::int from legacy_tokens where revoked_at is null) as tokens`,
  );
  return plan ?? { sessions: 0, keys: 0, tokens: 0 };
}
