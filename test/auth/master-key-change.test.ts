import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { readConfig } from '../../src/config.ts';
import { isMasterKeyRight } from '../../src/control/master-key-canary.ts';
import { createSecretBox } from '../../src/control/secret-box.ts';
import { type Installation, openInstallation } from '../../src/installation.ts';
import { resealSecrets } from '../../src/operator/tenants/keys.ts';
import { type RunningServer, startServer } from '../../src/server.ts';
import { runScript } from '../support/command-line.ts';
import { createWorld, type World } from '../support/world.ts';

const statuses = '/api/v1/EntityStatus';

describe('master key of an installation', () => {
  let world: World;
  before(async () => {
    world = await createWorld();
  });
  after(() => world.close());

  const newKey = (): string => randomBytes(32).toString('base64');
  const isRight = (key: string, previous?: string): Promise<boolean> => {
    const box = createSecretBox(Buffer.from(key, 'base64'), previous ? Buffer.from(previous, 'base64') : undefined);
    return isMasterKeyRight(world.control, box);
  };

  it('a master key that opens none of the secrets is never taken for that of the installation', async () => {
    expect(await isRight(newKey())).to.equal(false);
    expect(await isRight(world.environment.MASTER_KEY ?? '')).to.equal(true);
    expect(await isRight(newKey())).to.equal(false);
    expect(await isRight(newKey(), world.environment.MASTER_KEY)).to.equal(true);
  });

  it('service and command line refuse a wrong master key with exit code 1 and a sentence with MASTER_KEY', async () => {
    const wrong = { ...world.environment, MASTER_KEY: newKey() };
    const results = [
      await runScript('src/main.ts', [], wrong),
      await runScript('scripts/tenant.ts', ['list'], wrong),
      await runScript('scripts/control.ts', ['reseal'], wrong),
      await runScript('scripts/control.ts', ['migrate'], wrong),
    ];
    for (const { code, stdout, stderr } of results) {
      expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
      expect(stderr).to.match(/^MASTER_KEY is not the master key of this control database: [^.]+\.\n$/);
    }
  });

  it('a rolling change of the master key in three steps refuses no access token and no refresh token', async () => {
    const old = world.environment.MASTER_KEY ?? '';
    const fresh = newKey();
    const running: { service: RunningServer; installation: Installation }[] = [];
    const replace = async (index: number, keys: Record<string, string>): Promise<void> => {
      const config = readConfig({ ...world.environment, ...keys });
      const installation = await openInstallation(config);
      expect(await isMasterKeyRight(installation.control, installation.secrets)).to.equal(true);
      const service = await startServer({ config, installation, log: world.log, passwords: world.passwords });
      const before = running[index];
      running[index] = { service, installation };
      await before?.service.stop();
      await before?.installation.close();
    };
    const url = (index: number) => `http://127.0.0.1:${running[index]?.service.port}`;
    const results: number[] = [];
    let tokens = (await world.login(world.acme)).tokens;
    /** Uses and refreshes the tokens of each process at the other one. */
    const use = async (): Promise<void> => {
      for (const index of [0, 1, 0]) {
        const headers = { Authorization: `Bearer ${tokens?.accessToken}`, 'X-Tenant': world.acme.guid };
        results.push((await fetch(`${url(index)}${statuses}`, { headers })).status);
        const client = world.anonymous.at(url(index));
        const refreshed = await client.post('/api/v1/auth/refresh', tokens, { 'X-Tenant': world.acme.guid });
        results.push(refreshed.status);
        tokens = refreshed.body;
      }
    };
    await replace(0, {});
    await replace(1, {});
    await use();
    for (const keys of [
      { MASTER_KEY: old, MASTER_KEY_PREVIOUS: fresh },
      { MASTER_KEY: fresh, MASTER_KEY_PREVIOUS: old },
    ]) {
      for (const index of [0, 1]) {
        await replace(index, keys);
        await use();
      }
    }
    await resealSecrets(running[0]?.installation as Installation);
    await use();
    for (const index of [0, 1]) {
      await replace(index, { MASTER_KEY: fresh });
      await use();
    }
    expect(new Set(results)).to.deep.equal(new Set([200]));
    expect(results).to.have.length(48);
    expect(await isRight(old)).to.equal(false);
    for (const { service, installation } of running) {
      await service.stop();
      await installation.close();
    }
  });
});
