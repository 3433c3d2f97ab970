import { hash } from '@node-rs/argon2';
import { expect } from 'chai';
import { createPasswords } from '../../../src/accounts/auth/passwords.ts';

const argon2id = 2;

describe('hashes of passwords', () => {
  const passwords = createPasswords();
  const storedHash = (memoryCost: number, timeCost: number, parallelism = 1): Promise<string> =>
    hash('the right password', { algorithm: argon2id, memoryCost, timeCost, parallelism });
  /** Returns the result, and how many hashes it took. */
  const verify = async (
    stored: string | undefined,
    password: string,
  ): Promise<[matches: boolean, hashes: number]> => {
    const before = passwords.usage.hashed;
    const matches = await passwords.verify(stored, password);
    return [matches, passwords.usage.hashed - before];
  };

  it('a wrong password for a hash that is cheaper than a current one takes a second hash', async () => {
    for (const cheap of [
      await storedHash(8, 1),
      await storedHash(4_096, 3),
      await storedHash(19_455, 2, 4),
    ]) {
      expect(await verify(cheap, 'a wrong password'), cheap).to.deep.equal([false, 2]);
      expect(await verify(cheap, 'the right password'), cheap).to.deep.equal([true, 1]);
    }
  });

  it('a wrong password takes one hash if the stored hash is current, more expensive or missing', async () => {
    for (const stored of [
      await passwords.hash('the right password'),
      await storedHash(19_456, 3),
      undefined,
    ]) {
      expect(await verify(stored, 'a wrong password'), stored).to.deep.equal([false, 1]);
    }
  });

  it('while the event loop is idle, as many hashes as there are cores are computed at a time, and others wait', async () => {
    const { hash, usage } = createPasswords({ busy: 1, idle: 2 });
    const hashes = ['one', 'two', 'three'].map(password => hash(password));
    expect({ ...usage }).to.deep.equal({ hashed: 2, waiting: 1 });
    await Promise.all(hashes);
    expect({ ...usage }).to.deep.equal({ hashed: 3, waiting: 0 });
  });
});
