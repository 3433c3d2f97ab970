import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { hash, verify } from '@node-rs/argon2';
import { HashQueue, type HashRequester } from './hash-queue.ts';

/** The work of a hash: memory in KiB, and iterations. */
interface HashWork {
  readonly memoryCost: number;
  readonly timeCost: number;
}

/**
 * argon2id with the parameters of OWASP's password storage cheat sheet: 19 MiB, two iterations,
 * parallelism 1.
 */
const defaultWork: HashWork = { memoryCost: 19_456, timeCost: 2 };
const variant = { algorithm: 2 /* argon2id */, parallelism: 1 };
const argon2Hash = /^\$argon2id\$v=19\$m=(\d{1,5}),t=(\d),p=(\d)\$[\w+/]{11,}\$[\w+/]{16,}$/;

/**
 * Bounds of the parameters in a stored hash, which choose how much memory and time a
 * verification takes: memory in KiB, iterations, lanes. A hash beyond them is not verified;
 * without the bounds, one row could end the process.
 */
const bounds = { memory: [8, 65_536], iterations: [1, 6], lanes: [1, 4] } as const;

/**
 * Stored for a user who has no password: no password verifies against it, because it is no
 * hash.
 */
export const noPassword = 'none';

// at 10 to 20 ms per hash, the last one waits about 1 s; about 3 s when the process is busy
const maxQueue = 48;
/** Utilization of a core by the thread of the event loop, which a hash does not use. */
const idleUtilization = 0.5;
const busyUtilization = 0.8;
// a hash that takes longer than usual shows that other processes get the CPU already
const maxPauseMs = 40;

/**
 * Hashes and verifies passwords on other threads, a few at a time, so that other requests are
 * still served.
 */
export type Passwords = ReturnType<typeof createPasswords>;

/** Hashes at a time, while the event loop is busy and while it is idle. */
type HashConcurrency = Readonly<Record<'busy' | 'idle', number>>;

/**
 * Returns how many hashes each of the processes computes at a time. All processes together
 * compute as many as there are cores while requests without a password are few, otherwise one
 * less. Each computes at least one, and at most three, so that one of the four threads of
 * Node's pool is free for name look-ups of new connections.
 */
export function hashConcurrency(processes: number): HashConcurrency {
  const share = (cores: number): number => Math.max(1, Math.min(3, Math.floor(cores / processes)));
  return { busy: share(availableParallelism() - 1), idle: share(availableParallelism()) };
}

/** @param work of new hashes */
export function createPasswords(concurrency = hashConcurrency(1), work = defaultWork) {
  const parameters = { ...variant, ...work };
  const currentPrefix = `$argon2id$v=19$m=${work.memoryCost},t=${work.timeCost},p=${variant.parallelism}$`;
  const { usage, run, countHash } = createLimiter(concurrency, maxQueue);
  const decoy = hash(randomBytes(16), parameters);

  return {
    usage,
    /**
     * @param requester by default an operator
     * @throws {Problem} as `HashQueue.enqueue` does; `verify` uses the same queue
     */
    hash: (password: string, requester = operator) =>
      run(() => hash(normalise(password), parameters), requester),

    /**
     * Without a stored hash, or with one of another algorithm or beyond `bounds`, takes the
     * same time and returns false. After a wrong password for a hash that takes less work than
     * a current one, does the rest of that work, so that an imported hash does not disclose its
     * account by a quick response.
     */
    verify: async (
      storedHash: string | undefined,
      password: string,
      requester = operator,
    ): Promise<boolean> => {
      const verifyDecoy = async () => (await verify(await decoy, normalise(password))) && false;

      return run(async () => {
        const stored = storedHash === undefined ? undefined : readParameters(storedHash);
        if (storedHash === undefined || !stored) return verifyDecoy();

        try {
          if (await verify(storedHash, normalise(password))) return true;
        } catch {
          return verifyDecoy(); // the hash is not base64, or has too little memory for its lanes
        }

        const missingMemory = Math.ceil((kibWritten(work) - kibWritten(stored)) / work.timeCost);
        if (missingMemory > 0) {
          countHash();
          await hash(normalise(password), {
            ...parameters,
            memoryCost: Math.max(missingMemory, bounds.memory[0]),
          });
        }

        return false;
      }, requester);
    },

    /** True for a stored hash with other parameters than the current ones. */
    isOutdated: (storedHash: string) => !storedHash.startsWith(currentPrefix),
  };
}

/**
 * Returns the parameters of a stored hash; undefined for another algorithm, and for parameters
 * beyond `bounds`.
 */
function readParameters(storedHash: string): HashWork | undefined {
  const found = argon2Hash.exec(storedHash);
  if (!found) return undefined;
  const [memoryCost = 0, timeCost = 0, lanes = 0] = found.slice(1).map(Number);
  const isWithinBounds =
    isWithin(bounds.memory, memoryCost) &&
    isWithin(bounds.iterations, timeCost) &&
    isWithin(bounds.lanes, lanes);
  return isWithinBounds ? { memoryCost, timeCost } : undefined;
}

function isWithin([min, max]: readonly [number, number], value: number): boolean {
  return value >= min && value <= max;
}

/**
 * Returns the work of a hash in KiB written: argon2 fills its memory once per iteration (RFC
 * 9106 §3.2).
 */
function kibWritten({ memoryCost, timeCost }: HashWork): number {
  return memoryCost * timeCost;
}

const operator: HashRequester = { tenant: '', network: '' };

/**
 * The length of a new password, in code points. `min` is that beside a second factor; without
 * one, an installation asks for more (`minPasswordLength`).
 */
export const passwordLength = { min: 8, max: 128 };

/** A password typed on another keyboard must yield the same hash (NIST SP 800-63B §3.1.1.2). */
function normalise(password: string): string {
  return password.normalize('NFKC');
}

/**
 * Runs up to `concurrency.idle` or `concurrency.busy` tasks at a time, depending on how busy
 * the event loop was during the last task, and queues at most `maxWaiting`. While the event
 * loop is busy, a pause follows each task, twice as long as the task and at most `maxPauseMs`:
 * that leaves most of the cores to the database, Redis and other processes that the requests
 * depend on.
 */
function createLimiter(concurrency: HashConcurrency, maxWaiting: number) {
  const queue = new HashQueue(maxWaiting);
  let limit = concurrency.idle;
  let running = 0;
  let hashed = 0;

  const end = (): void => {
    running--;
    while (running < limit && queue.startNext()) running++;
  };

  return {
    /** `hashed`: hashes and verifications since the start. `waiting`: length of the queue. */
    usage: {
      get hashed(): number {
        return hashed;
      },
      get waiting(): number {
        return queue.length;
      },
    },

    /** Counts a further hash of a task. */
    countHash: (): void => void hashed++,

    run: async <T>(task: () => Promise<T>, requester: HashRequester): Promise<T> => {
      const trace = requester.deadline?.trace;
      const requestedAt = performance.now();

      if (running >= limit) await queue.enqueue(requester);
      else running++;
      hashed++;

      const startedAt = performance.now();
      trace?.addStep('wait for a hash', requestedAt, startedAt);

      const usageBefore = process.threadCpuUsage();
      try {
        return await (trace ? trace.step('hash', {}, task) : task());
      } finally {
        // Not `eventLoopUtilization`: it counts the time in which hashes keep this thread from
        // its core, so two hashes on two cores would look like a busy event loop.
        const { user, system } = process.threadCpuUsage(usageBefore);
        const utilization = (user + system) / 1_000 / (performance.now() - startedAt);
        limit = utilization < idleUtilization ? concurrency.idle : concurrency.busy;
        if (utilization > busyUtilization) {
          setTimeout(end, Math.min(2 * (performance.now() - startedAt), maxPauseMs));
        } else {
          end();
        }
      }
    },
  };
}
