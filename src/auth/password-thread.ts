import { hashSync, type Options, verifySync } from '@node-rs/argon2';

// What a thread of its own does: one hash at a time, in memory of its own.

export function hash({ password, parameters }: { password: string; parameters: Options }): string {
  return hashSync(password, parameters);
}

export function verify({ storedHash, password }: { storedHash: string; password: string }): boolean {
  return verifySync(storedHash, password);
}
