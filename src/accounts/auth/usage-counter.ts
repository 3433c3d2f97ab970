import type { Logger } from 'pino';
import type { ControlDatabase } from '../../control/database.ts';
import { describeError } from '../../lib/log/describe-error.ts';
import { RepeatedWrite } from '../../lib/runtime/repeated-write.ts';

const writeIntervalMs = 2_000;

/**
 * Counts the uses of legacy tokens in memory and stores the counts every 2 s, so that no
 * request waits for it.
 */
export type UsageCounter = ReturnType<typeof createUsageCounter>;

export function createUsageCounter(control: ControlDatabase, log: Logger) {
  const counts = new Map<string, number>();

  const write = async (): Promise<void> => {
    const batch = [...counts];
    counts.clear();

    for (const [hash, uses] of batch) {
      await control.em
        .fork()
        .execute('update legacy_tokens set uses = uses + ?, last_used_at = now() where hash = ?', [
          uses,
          Buffer.from(hash, 'hex'),
        ]);
    }
  };

  const onError = (error: unknown) =>
    log.warn({ err: describeError(error) }, 'the uses of legacy tokens could not be stored');
  const writes = new RepeatedWrite(() => write().catch(onError), writeIntervalMs);

  return {
    count: (hash: string): void => void counts.set(hash, (counts.get(hash) ?? 0) + 1),
    /** Stores the remaining counts, and ends. */
    stop: (): Promise<void> => writes.stop(),
  };
}
