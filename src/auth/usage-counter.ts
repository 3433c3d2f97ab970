import type { ControlDatabase } from '../control/database.ts';

const writeEveryMs = 2_000;

/** Counts the uses of legacy tokens in memory and writes them down now and then, so that a request waits for nothing. */
export interface UsageCounter {
  count(hash: string): void;
  /** Writes down what is counted, and stops. */
  stop(): Promise<void>;
}

export function createUsageCounter(control: ControlDatabase, onError: (error: unknown) => void): UsageCounter {
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
  let writing: Promise<void> = Promise.resolve();
  const timer = setInterval(() => {
    if (counts.size > 0) writing = writing.then(write).catch(onError);
  }, writeEveryMs).unref();
  return {
    count: hash => void counts.set(hash, (counts.get(hash) ?? 0) + 1),
    stop: async () => {
      clearInterval(timer);
      await writing.then(write).catch(onError);
    },
  };
}
