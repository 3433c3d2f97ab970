import { createPasswords, type Passwords } from '../../src/accounts/auth/passwords.ts';

/** Passwords whose hashes take 0.1 ms of CPU time, against 20 ms in the service. */
export const createQuickPasswords = (): Passwords =>
  createPasswords(undefined, { memoryCost: 8, timeCost: 1 });
