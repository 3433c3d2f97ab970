import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { hash, verify } from '@node-rs/argon2';
import { HashQueue, type HashRequester } from './hash-queue.ts';

/** argon2id with the parameters of OWASP's password storage cheat sheet: 19 MiB, two iterations, parallelism 1. */
const parameters = { algorithm: 2 /* argon2id */, memoryCost: 19_456, timeCost: 2, parallelism: 1 };
const currentPrefix = '$argon2id$v=19$m=19456,t=2,p=1$';
const argon2Hash = /^\$argon2id\$v=19\$m=(\d{1,5}),t=(\d),p=(\d)\$[\w+/]{11,}\$[\w+/]{16,}$/;

/**
 * Bounds of the parameters in a stored hash, which choose how much memory and time a verification takes: memory in KiB,
 * iterations, lanes. A hash beyond them is not verified; without the bounds, one row could end the process.
 */
const bounds = { memory: [8, 65_536], iterations: [1, 6], lanes: [1, 4] } as const;

const maxQueue = 48; // at 10 to 20 ms per hash, the last one waits about 1 s; about 3 s when the process is busy
const busyUtilization = 0.8; // of the event loop
const maxPauseMs = 40; // a hash that takes longer than usual shows that other processes get the CPU already

/** Hashes and verifies passwords on other threads, a few at a time, so that other requests are still served. */
export interface Passwords {
  /** `hashed`: hashes and verifications since the start, which take the same work. `waiting`: length of the queue. */
  readonly usage: { readonly hashed: number; readonly waiting: number };
  /**
   * @param requester absent: an operator
   * @throws {Problem} as `HashQueue.enqueue` does; `verify` uses the same queue
   */
  hash(password: string, requester?: HashRequester): Promise<string>;
  /**
   * Without a stored hash, or with one of another algorithm or beyond `bounds`, it takes the same time and returns
   * false.
   */
  verify(storedHash: string | undefined, password: string, requester?: HashRequester): Promise<boolean>;
  /** True for a stored hash with other parameters than the current ones. */
  isOutdated(storedHash: string): boolean;
}

/**
 * @param concurrency default: one core less than there are, for requests without a password, and at most three, so that
 *   one of the four threads of Node's pool is free for name look-ups of new connections
 */
export function createPasswords(concurrency = Math.max(1, Math.min(3, availableParallelism() - 1))): Passwords {
  const { usage, run } = createLimiter(concurrency, maxQueue);
  const decoy = hash(randomBytes(16), parameters);
  return {
    usage,
    hash: (password, requester = operator) => run(() => hash(normalise(password), parameters), requester),
    verify: async (storedHash, password, requester = operator) => {
      const verifyDecoy = async () => (await verify(await decoy, normalise(password))) && false;
      return run(async () => {
        if (storedHash === undefined || !isVerifiable(storedHash)) return verifyDecoy();
        // It rejects if the hash is not base64, or has too little memory for its lanes.
        return verify(storedHash, normalise(password)).catch(verifyDecoy);
      }, requester);
    },
    isOutdated: storedHash => !storedHash.startsWith(currentPrefix),
  };
}

function isVerifiable(storedHash: string): boolean {
  const [, memory, iterations, lanes] = argon2Hash.exec(storedHash) ?? [];
  return isWithin(bounds.memory, memory) && isWithin(bounds.iterations, iterations) && isWithin(bounds.lanes, lanes);
}

function isWithin([min, max]: readonly [number, number], text: string | undefined): boolean {
  return text !== undefined && Number(text) >= min && Number(text) <= max;
}

const operator: HashRequester = { tenant: '', network: '' };

export const passwordLength = { min: 8, max: 128 }; // code points

/** A password typed on another keyboard must yield the same hash (NIST SP 800-63B §3.1.1.2). */
function normalise(password: string): string {
  return password.normalize('NFKC');
}

interface Limiter {
  readonly usage: Passwords['usage'];
  run<T>(task: () => Promise<T>, requester: HashRequester): Promise<T>;
}

/**
 * Runs at most `concurrency` tasks at a time, and queues at most `maxWaiting`. While the event loop is busy, each task
 * is followed by a pause twice as long as the task, at most `maxPauseMs`: that leaves most of the cores to the
 * database, Redis and other processes that the requests depend on.
 */
function createLimiter(concurrency: number, maxWaiting: number): Limiter {
  const queue = new HashQueue(maxWaiting);
  let running = 0;
  let hashed = 0;
  const next = (): void => {
    if (!queue.startNext()) running--;
  };
  return {
    usage: {
      get hashed() {
        return hashed;
      },
      get waiting() {
        return queue.length;
      },
    },
    run: async (task, requester) => {
      if (running >= concurrency) await queue.enqueue(requester);
      else running++;
      hashed++;
      const startedAt = performance.now();
      const utilizationBefore = performance.eventLoopUtilization();
      try {
        return await task();
      } finally {
        const { utilization } = performance.eventLoopUtilization(utilizationBefore);
        if (utilization > busyUtilization) setTimeout(next, Math.min(2 * (performance.now() - startedAt), maxPauseMs));
        else next();
      }
    },
  };
}
