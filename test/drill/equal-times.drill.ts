import { randomInt, randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { createProgramKey } from '../../src/control/program-key.ts';
import { tokenChecksum } from '../../src/control/token-checksum.ts';
import { factorWorld } from '../accounts/auth/factors/factor-world.ts';
import { storeKey, storeProgram } from '../accounts/programs/stored-programs.ts';
import { useWorld } from '../support/world.ts';

/** Requests of each kind. */
const count = 1_500;
/**
 * The chance that a request of the second kind takes longer than one of the first is 1/2 when
 * their times tell nothing. Of 1,500 each, chance alone moves it by 0.01 (one standard
 * deviation, of the statistic of Mann and Whitney).
 */
const tolerance = 0.05;

/** Sends a request, and returns its status. */
type Send = () => Promise<number>;

/** Run it on a quiet machine: it measures times. */
describe('drill: refusals that take equally long', () => {
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1' });

  /** Reads responses to their end, over a connection that is kept open. */
  const statusOf = async (path: string, init: RequestInit): Promise<number> => {
    const response = await fetch(`${world.url}${path}`, init);
    await response.arrayBuffer();
    return response.status;
  };
  const withKey = (key: string): Promise<number> =>
    statusOf('/api/v1/auth/me', { headers: { Authorization: `Bearer ${key}` } });
  const requestToken = (clientId: string, key: string): Promise<number> =>
    statusOf('/api/v1/auth/token', {
      method: 'POST',
      // an address gets 60 tokens a minute for a program
      headers: { 'X-Forwarded-For': `10.${randomInt(256)}.${randomInt(256)}.${randomInt(256)}` },
      body: new URLSearchParams({
        grant_type: 'client_credentials',
        client_id: clientId,
        client_secret: key,
      }),
    });
  const newKey = (): string => createProgramKey().key;

  const login = (email: string, password: string): Promise<number> =>
    statusOf('/api/v1/auth/login', {
      method: 'POST',
      headers: { 'X-Tenant': world.acme.guid, 'Content-Type': 'application/json' },
      body: JSON.stringify({ email, password }),
    });
  const unknownAddress = (): string => `${randomUUID()}@acme.test`;

  /**
   * Sends both kinds in turn, in a random order within each pair, one at a time.
   * @returns the chance that a request of the second takes longer
   */
  async function compare(kinds: readonly [Send, Send]): Promise<number> {
    const times: [number[], number[]] = [[], []];
    for (let index = -100; index < count; index++) {
      for (const kind of Math.random() < 0.5 ? ([0, 1] as const) : ([1, 0] as const)) {
        const beganAt = performance.now();
        expect(await kinds[kind]()).to.equal(401);
        if (index >= 0) times[kind].push(performance.now() - beganAt);
      }
    }

    const [first, second] = times;
    const longer = second.map(time => first.filter(other => other < time).length);
    return longer.reduce((sum, each) => sum + each, 0) / count ** 2;
  }

  it('a refusal of the token endpoint does not tell by its time whether a program is known', async () => {
    const { guid, id } = await storeProgram(world, world.acme);
    await storeKey(world, world.acme, id);

    const chance = await compare([
      () => requestToken(randomUUID(), newKey()),
      () => requestToken(guid, newKey()),
    ]);

    console.log(`      a known program takes longer: ${chance.toFixed(3)}`);
    expect(chance).to.be.closeTo(0.5, tolerance);
  });

  it('a guess of a key does not tell by its time whether a key begins like it', async () => {
    const { id } = await storeProgram(world, world.acme);
    const { prefix } = await storeKey(world, world.acme, id);
    const keyPrefix = 'sbk_';
    /** A guess that begins like the key, and has a checksum of its own. */
    const guess = (): string => {
      const secret = prefix.slice(keyPrefix.length) + newKey().slice(prefix.length, -8);
      return `${keyPrefix}${secret}${tokenChecksum(secret)}`;
    };

    const chance = await compare([() => withKey(newKey()), () => withKey(guess())]);

    console.log(`      the same beginning takes longer: ${chance.toFixed(3)}`);
    expect(chance).to.be.closeTo(0.5, tolerance);
  });

  it('a failed login does not tell by its time whether its address is known', async () => {
    const { email } = world.acme.admin;

    const chance = await compare([
      () => login(unknownAddress(), 'wrong password'),
      () => login(email, 'wrong password'),
    ]);

    console.log(`      a known address takes longer: ${chance.toFixed(3)}`);
    expect(chance).to.be.closeTo(0.5, tolerance);
  });

  it('a failed login does not tell by its time whether its address has a second factor', async () => {
    const people = factorWorld(world);
    const { person, client } = await people.add(world.acme);
    await people.addTotp(client);

    const chance = await compare([
      () => login(unknownAddress(), 'wrong password'),
      () => login(person.email, 'wrong password'),
    ]);

    console.log(`      an address with a second factor takes longer: ${chance.toFixed(3)}`);
    expect(chance).to.be.closeTo(0.5, tolerance);
  });
});
