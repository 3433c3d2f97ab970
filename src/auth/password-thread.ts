import { type Algorithm, hashSync, verifySync } from '@node-rs/argon2';

/** argon2id as OWASP's password storage cheat sheet has it: 19 MiB, two passes, one lane. */
const parameters = { algorithm: 2 satisfies Algorithm.Argon2id, memoryCost: 19_456, timeCost: 2, parallelism: 1 };

// What a thread of its own does: one hash at a time, in memory of its own.

export function hash(password: string): string {
  return hashSync(password, parameters);
}

export function verify({ storedHash, password }: { storedHash: string; password: string }): boolean {
  return verifySync(storedHash, password);
}
