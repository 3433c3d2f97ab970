import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { hash, verify } from '@node-rs/argon2';
import { problem } from '../errors.ts';

/** argon2id as OWASP's password storage cheat sheet has it: 19 MiB, two passes, one lane. */
const parameters = { algorithm: 2 /* argon2id */, memoryCost: 19_456, timeCost: 2, parallelism: 1 };
const currentPrefix = '$argon2id$v=19$m=19456,t=2,p=1$';
const argon2Hash = /^\$argon2id\$v=19\$m=\d+,t=\d+,p=\d+\$[\w+/]{11,}\$[\w+/]{16,}$/;

const maxQueue = 48; // at 10 to 20 ms each, the last one waits about a second; three when there is much else to do
const busy = 0.8; // of its time, the event loop works
const maxRestMs = 40; // where a hash takes longer than usual, others have the machine already

/** Hashes and checks passwords on other threads, a few at a time, so that everybody else is still answered. */
export interface Passwords {
  /** `hashed`: worked on since the start, each the same work, whatever it was for. `waiting`: in line now. */
  readonly usage: { readonly hashed: number; readonly waiting: number };
  /** @throws {Problem} `overloaded` when too many wait already (of `verify` too) */
  hash(password: string): Promise<string>;
  /** Without a stored hash, or with one of another kind, it takes the same time, and answers no. */
  verify(storedHash: string | undefined, password: string): Promise<boolean>;
  /** Whether a stored hash was made with other parameters than today's. */
  isOutdated(storedHash: string): boolean;
}

/** One core is left to those who do not log in, and one of Node's four threads to those who open connections. */
export function createPasswords(concurrency = Math.max(1, Math.min(3, availableParallelism() - 1))): Passwords {
  const { usage, run } = limiter(concurrency, maxQueue);
  const decoy = hash(randomBytes(16), parameters);
  return {
    usage,
    hash: password => run(() => hash(normalise(password), parameters)),
    verify: async (storedHash, password) => {
      const known = storedHash !== undefined && argon2Hash.test(storedHash);
      const matches = await run(async () => verify(known ? storedHash : await decoy, normalise(password)));
      return matches && known;
    },
    isOutdated: storedHash => !storedHash.startsWith(currentPrefix),
  };
}

export const passwordLength = { min: 8, max: 128 }; // code points

/** The same password typed on another keyboard is the same (NIST SP 800-63B §3.1.1.2). */
function normalise(password: string): string {
  return password.normalize('NFKC');
}

interface Limiter {
  readonly usage: Passwords['usage'];
  run<T>(task: () => Promise<T>): Promise<T>;
}

/**
 * Runs at most `concurrency` tasks at a time and lets at most `longest` wait. While requests keep the process busy, each
 * task is followed by a rest twice as long: most of those cores is left to the database, Redis and whatever else answers
 * the requests.
 */
function limiter(concurrency: number, longest: number): Limiter {
  const waiting: (() => void)[] = [];
  let running = 0;
  let hashed = 0;
  const next = (): void => {
    const resume = waiting.shift();
    if (resume) resume();
    else running--;
  };
  return {
    usage: {
      get hashed() {
        return hashed;
      },
      get waiting() {
        return waiting.length;
      },
    },
    run: async task => {
      if (running >= concurrency) {
        if (waiting.length >= longest) throw problem('overloaded');
        await new Promise<void>(resolve => waiting.push(resolve));
      } else {
        running++;
      }
      hashed++;
      const startedAt = performance.now();
      const before = performance.eventLoopUtilization();
      try {
        return await task();
      } finally {
        const { utilization } = performance.eventLoopUtilization(before);
        if (utilization > busy) setTimeout(next, Math.min(2 * (performance.now() - startedAt), maxRestMs));
        else next();
      }
    },
  };
}
