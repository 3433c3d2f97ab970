import { createHash, randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { readConfig } from '../../src/config/config.ts';
import { type ControlDatabase, openControlDatabase } from '../../src/control/database.ts';
import { checkMasterKey } from '../../src/control/master-key-canary.ts';
import { createSecretBox, owners, type SecretBox } from '../../src/control/secret-box.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { type Installation, openInstallation } from '../../src/installation.ts';
import { registerNextKey, resealSecrets } from '../../src/operator/people/master-key-change.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { type RunningServer, startServer } from '../../src/server.ts';
import { runCommand } from '../support/run-command.ts';
import { controlTemplate, postgresUrl } from '../support/test-server.ts';
import { useWorld } from '../support/world.ts';

const statuses = '/api/v1/EntityStatus';

describe('master key of an installation', () => {
  const world = useWorld();

  it('a master key that opens none of the secrets is never taken for that of the installation', async () => {
    const old = world.environment.MASTER_KEY ?? '';
    expect(await check(newKey())).to.equal('wrong');
    expect(await check(newKey(), old), 'no canary yet').to.equal('wrong');
    expect(await check(old)).to.equal('right');
    expect(await check(newKey())).to.equal('wrong');
    expect(await check(newKey(), old)).to.equal('wrong');
    expect(await check(old, newKey())).to.equal('right');
  });

  it('service and command line refuse a wrong master key with exit code 1 and a sentence with MASTER_KEY', async () => {
    const old = world.environment.MASTER_KEY ?? '';
    for (const keys of [{ MASTER_KEY: newKey() }, { MASTER_KEY: newKey(), MASTER_KEY_PREVIOUS: old }]) {
      const wrong = { ...world.environment, ...keys };
      const results = await Promise.all([
        runCommand('src/main.ts', [], wrong),
        runCommand('scripts/tenant.ts', ['list'], wrong),
        runCommand('scripts/control.ts', ['reseal', '--yes'], wrong),
        runCommand('scripts/control.ts', ['migrate'], wrong),
      ]);
      for (const { code, stdout, stderr } of results) {
        expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
        expect(stderr).to.match(/^MASTER_KEY is not the master key of this control database: [^.]+\.\n$/);
      }
    }
  });

  it('a rolling change of the master key in three steps refuses no access token and no refresh token', async () => {
    const old = world.environment.MASTER_KEY ?? '';
    const fresh = newKey();
    const running: { service: RunningServer; installation: Installation }[] = [];
    const replace = async (index: number, keys: Record<string, string>): Promise<void> => {
      const config = readConfig({ ...world.environment, ...keys });
      const installation = await openInstallation(config);
      expect(await checkMasterKey(installation.control.em, installation.secrets)).to.equal('right');
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
    await registerNextKey({ control: world.control, secrets: box(old, fresh) });
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
    expect(await check(old)).to.equal('wrong');
    for (const { service, installation } of running) {
      await service.stop();
      await installation.close();
    }
  });

  it('the next master key is accepted once it is registered, and only together with the key that opens the secrets', async () => {
    const { control, dropDatabase } = await installationUnder('a');
    const state = (master: string, previous?: string) => checkMasterKey(control.em, sampleBox(master, previous));
    expect(await state('b', 'a')).to.equal('wrong');
    expect(await registerNextKey({ control, secrets: sampleBox('a', 'b') })).to.equal(true);
    expect(await state('a'), 'a process that still runs with the old settings restarts').to.equal('right');
    expect(await state('a', 'b')).to.equal('right');
    expect(await state('b', 'a')).to.equal('right');
    expect(await state('b')).to.equal('lacks_previous');
    expect(await state('b', 'c')).to.equal('lacks_previous');
    expect(await state('c', 'a')).to.equal('wrong');
    expect(await state('c', 'b')).to.equal('wrong');
    await resealSecrets({ control, secrets: sampleBox('b', 'a') });
    expect(await state('b')).to.equal('right');
    expect(await state('b', 'a')).to.equal('right');
    expect(await state('a', 'b')).to.equal('wrong');
    await dropDatabase();
  });

  it('a repeated step of a change of the master key changes nothing', async () => {
    const { control, dropDatabase } = await installationUnder('a');
    const canaries = () => control.em.execute('select master_key_canary, next_master_key_canary from installation');
    const register = (master: string, previous: string) =>
      registerNextKey({ control, secrets: sampleBox(master, previous) });
    await register('a', 'b');
    const registered = await canaries();
    expect(await register('a', 'b')).to.equal(false);
    expect(await register('b', 'a'), 'with the keys swapped').to.equal(false);
    expect(await canaries()).to.deep.equal(registered);
    for (const _ of [1, 2]) {
      await resealSecrets({ control, secrets: sampleBox('b', 'a') });
      expect(await checkMasterKey(control.em, sampleBox('b'))).to.equal('right');
      expect(await checkMasterKey(control.em, sampleBox('a', 'b'))).to.equal('wrong');
    }
    await dropDatabase();
  });

  it('a change of the master key can be given up, and a mistyped next key replaced', async () => {
    const { control, dropDatabase } = await installationUnder('a');
    const state = (master: string, previous?: string) => checkMasterKey(control.em, sampleBox(master, previous));
    await registerNextKey({ control, secrets: sampleBox('a', 'mistyped') });
    await registerNextKey({ control, secrets: sampleBox('a', 'b') });
    expect(await state('mistyped', 'a')).to.equal('wrong');
    expect(await state('b', 'a')).to.equal('right');
    await resealSecrets({ control, secrets: sampleBox('a', 'b') });
    expect(await state('b', 'a')).to.equal('wrong');
    expect(await state('a')).to.equal('right');
    await dropDatabase();
  });

  it('after the control database of an earlier moment is restored, the change of the master key is repeated', async () => {
    const { control, dropDatabase } = await installationUnder('a');
    const read = () => control.em.execute('select master_key_canary, next_master_key_canary, url from backup');
    const restore = () =>
      control.em.execute(
        `update servers set admin_url = backup.url from backup;
         update installation set (master_key_canary, next_master_key_canary) =
           (select master_key_canary, next_master_key_canary from backup)`,
      );
    await control.em.execute(
      `create table backup as select master_key_canary, next_master_key_canary, admin_url as url
         from installation, servers`,
    );
    expect(await read()).to.have.length(1);
    const change = async () => {
      await registerNextKey({ control, secrets: sampleBox('a', 'b') });
      await resealSecrets({ control, secrets: sampleBox('b', 'a') });
      expect(await checkMasterKey(control.em, sampleBox('b'))).to.equal('right');
    };
    await change();
    await restore();
    expect(await checkMasterKey(control.em, sampleBox('b', 'a'))).to.equal('wrong');
    expect(await checkMasterKey(control.em, sampleBox('a', 'b'))).to.equal('right');
    await change();
    await dropDatabase();
  });

  it('of concurrent first calls and of concurrent reseals with different master keys, one prevails', async () => {
    const { control, dropDatabase } = await installationUnder('a');
    await control.em.execute('update servers set admin_url = null');
    await control.em.execute('update installation set master_key_canary = null');
    const keys = ['a', 'b', 'c', 'd'];
    const first = await Promise.all(keys.map(key => checkMasterKey(control.em, sampleBox(key))));
    expect(first.filter(state => state === 'right')).to.have.length(1);
    const winner = keys[first.indexOf('right')] ?? '';
    await registerNextKey({ control, secrets: sampleBox(winner, 'next') });
    const reseals = await Promise.allSettled([
      resealSecrets({ control, secrets: sampleBox('next', winner) }),
      resealSecrets({ control, secrets: sampleBox(winner, 'next') }),
    ]);
    expect(reseals.map(({ status }) => status)).to.have.members(['fulfilled', 'rejected']);
    const states = [
      await checkMasterKey(control.em, sampleBox('next')),
      await checkMasterKey(control.em, sampleBox(winner)),
    ];
    expect(states).to.have.members(['right', 'wrong']);
    await dropDatabase();
  });

  function check(master: string, previous?: string) {
    return checkMasterKey(world.control.em, box(master, previous));
  }
});

const newKey = (): string => randomBytes(32).toString('base64');

function box(master: string, previous?: string): SecretBox {
  return createSecretBox(Buffer.from(master, 'base64'), previous ? Buffer.from(previous, 'base64') : undefined);
}

/** The secret box of keys with short names. */
function sampleBox(master: string, previous?: string): SecretBox {
  const key = (name: string) => createHash('sha256').update(name).digest('base64');
  return box(key(master), previous && key(previous));
}

/** A control database with one secret, which is sealed under a key of `sampleBox`. */
async function installationUnder(
  key: string,
): Promise<{ control: ControlDatabase; dropDatabase: () => Promise<void> }> {
  const name = `master_key_${randomBytes(5).toString('hex')}`;
  await withConnection(postgresUrl(), client =>
    client.query(`create database ${name} template ${controlTemplate} strategy file_copy`),
  );
  const control = openControlDatabase(databaseUrl(postgresUrl(), name), 8);
  const secrets = sampleBox(key);
  const [server] = await control.em.execute<{ name: string }[]>('select name from servers');
  const url = secrets.seal('postgresql://localhost/', owners.serverUrl(server?.name ?? ''));
  await control.em.execute('update servers set admin_url = ?', [url]);
  expect(await checkMasterKey(control.em, secrets)).to.equal('right');
  return {
    control,
    dropDatabase: async () => {
      await control.close(true);
      await withConnection(postgresUrl(), client => client.query(`drop database ${name}`));
    },
  };
}
