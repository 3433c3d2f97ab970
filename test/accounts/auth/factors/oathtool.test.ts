import { execFileSync, spawnSync } from 'node:child_process';
import { expect } from 'chai';
import { useWorld } from '../../../support/world.ts';
import { factorsPath, factorWorld } from './factor-world.ts';

/** An independent program that computes codes of RFC 6238, of the package of this name. */
const program = 'oathtool';
const isInstalled = spawnSync(program, ['--version']).status === 0;

(isInstalled ? describe : describe.skip)('codes of oathtool', () => {
  const world = useWorld();
  const people = factorWorld(world);

  /** Computes the code of the present time of the world; `steps` of 30 s later or earlier. */
  const codeOf = (secret: string, steps = 0): string => {
    const seconds = Math.floor(Date.now() / 1_000) + world.clock.offsetSeconds + steps * 30;
    const key = execFileSync(program, ['--totp', '--base32', `--now=@${seconds}`, '-'], {
      input: secret,
    });
    return String(key).trim();
  };

  /** Moves the clock to the begin of a step, so that none passes before the code arrives. */
  const beginStep = (): void => {
    const seconds = Math.floor(Date.now() / 1_000) + world.clock.offsetSeconds;
    world.clock.offsetSeconds += 30 - (seconds % 30);
  };

  it('a code of an independent program confirms an app and lets in, one step before and after too, and no further one', async () => {
    const { person, client } = await people.add(world.acme);
    const { id, secret } = (await client.post(`${factorsPath}/totp`, {})).body;
    const confirm = { code: codeOf(secret) };
    expect((await client.post(`${factorsPath}/${id}/confirm`, confirm)).status).to.equal(200);
    const login = async (steps: number): Promise<number> => {
      beginStep();
      const { challenge } = (await people.login(person)).body;
      return (await people.verify(person, { challenge, code: codeOf(secret, steps) })).status;
    };

    // Each code has to be of a later step than the one before it.
    world.clock.offsetSeconds += 120;
    expect(await login(-3), 'three steps before').to.equal(401);
    expect(await login(-1), 'a step before').to.equal(200);
    expect(await login(0), 'the present one').to.equal(200);
    expect(await login(3), 'three steps after').to.equal(401);
    expect(await login(1), 'a step after').to.equal(200);
  });
});
