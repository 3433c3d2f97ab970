import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { hash, verify } from '@node-rs/argon2';
import { problem } from '../errors.ts';

/** argon2id as OWASP's password storage cheat sheet has it: 19 MiB, two passes, one lane. */
const parameters = { algorithm: 2 /* argon2id */, memoryCost: 19_456, timeCost: 2, parallelism: 1 };
const currentPrefix = '$argon2id$v=19$m=19456,t=2,p=1$';
const argon2Hash = /^\$argon2id\$v=19\$m=\d+,t=\d+,p=\d+\$[\w+/]{11,}\$[\w+/]{16,}$/;

const longestQueue = 48; // at 10 to 20 ms each, the last one waits about a second

/** Hashes and checks passwords on other threads, a few at a time, so that everybody else is still answered. */
export interface Passwords {
  /** @throws {Problem} `overloaded` when too many wait already (of `verify` too) */
  hash(password: string): Promise<string>;
  /** Without a stored hash, or with one of another kind, it takes the same time, and answers no. */
  verify(storedHash: string | undefined, password: string): Promise<boolean>;
  /** Whether a stored hash was made with other parameters than today's. */
  isOutdated(storedHash: string): boolean;
}

/** One core is left to those who do not log in. */
export function createPasswords(concurrency = Math.max(1, availableParallelism() - 1)): Passwords {
  const run = limiter(concurrency, longestQueue);
  const decoy = hash(randomBytes(16), parameters);
  return {
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

/** Runs at most `concurrency` tasks at a time and lets at most `longest` wait. */
function limiter(concurrency: number, longest: number): <T>(task: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let running = 0;
  return async task => {
    if (running >= concurrency) {
      if (waiting.length >= longest) throw problem('overloaded');
      await new Promise<void>(resolve => waiting.push(resolve));
    } else {
      running++;
    }
    try {
      return await task();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}
