import { randomBytes, randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { newProcess } from '../../../src/control/process-identity.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';

const { host, pid, build } = newProcess('service');
/** The process that serves the world, which has the former key only. */
const own = { kind: 'service', host, pid, build, lack: 'lacks_key' };

describe('control reseal beside running processes', () => {
  const world = useWorld();
  const next = randomBytes(32).toString('base64');
  let former: string;

  const query = <Row extends object>(text: string, values: unknown[] = []) => controlSql<Row>(world, text, values);
  const sealed = () => query('select secret from signing_keys order by kid');
  const run = (args: string[], keys: Record<string, string>) =>
    runCommand('scripts/tenant.ts', args, { ...world.environment, ...keys });
  const reseal = (...args: string[]) =>
    run(['control', 'reseal', '--yes', ...args], { MASTER_KEY: next, MASTER_KEY_PREVIOUS: former });
  const management = (path: string) => fetch(`http://127.0.0.1:${world.service.managementPort}${path}`);
  const readiness = async () => {
    const response = await management('/health/ready');
    return { status: response.status, body: await response.json() };
  };

  before(async () => {
    former = world.environment.MASTER_KEY ?? '';
    await eventually(async () => (await query('select from processes')).length === 1);
    const { code, stderr } = await run(['control', 'register-key'], { MASTER_KEY: former, MASTER_KEY_PREVIOUS: next });
    expect(code, stderr).to.equal(0);
  });
  afterEach(() => query('delete from processes where host = ?', ['elsewhere']));

  /** Registers a process with a heartbeat in the future, so that it counts as running for the whole test. */
  const register = (kind: string, key: string | null, previous: string | null = null) =>
    query(
      `insert into processes (id, kind, host, pid, build, master_key, previous_master_key, seen_at)
       values (?, ?, 'elsewhere', 17, '0.0.9', ?, ?, now() + interval '1 minute')`,
      [randomUUID(), kind, key, previous],
    );
  const fingerprintOf = async (key: string) => {
    const { createSecretBox } = await import('../../../src/control/secret-box.ts');
    return createSecretBox(Buffer.from(key, 'base64')).current.fingerprint;
  };

  it('a process registers a fingerprint of its master key, which has no part of the key', async () => {
    const [row] = await query<{ key: string; previous: string | null }>(
      'select master_key as key, previous_master_key as previous from processes',
    );
    expect(row).to.deep.equal({ key: await fingerprintOf(former), previous: null });
    const bytes = Buffer.from(row?.key ?? '', 'base64url');
    expect(bytes).to.have.length(16);
    for (let at = 0; at + 3 <= bytes.length; at++)
      expect(Buffer.from(former, 'base64').includes(bytes.subarray(at, at + 3))).to.equal(false);
  });

  it('control reseal is refused while a process or another command lacks the new key, and names each of them', async () => {
    const before = await sealed();
    const { code, stdout, stderr } = await reseal();
    expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(stderr).to.equal(
      '1 running process would not have the only key of the secrets as MASTER_KEY: ' +
        `${host} pid ${pid} (build ${build}, which does not have this key). ` +
        'Stop them first, or add --despite-running to go on; nothing was changed.\n',
    );
    const [old, fresh] = [await fingerprintOf(former), await fingerprintOf(next)];
    await register('command', old);
    await register('service', old, fresh);
    await register('service', null);
    await register('service', fresh, old);
    const { error } = JSON.parse((await reseal('--json')).stderr);
    const elsewhere = { host: 'elsewhere', pid: 17, build: '0.0.9' };
    expect(error.code).to.equal('blocked');
    expect(error.blockedBy).to.have.deep.members([
      own,
      { kind: 'command', ...elsewhere, lack: 'lacks_key' },
      { kind: 'service', ...elsewhere, lack: 'is_previous' },
      { kind: 'service', ...elsewhere, lack: 'lacks_key' },
    ]);
    expect(await sealed()).to.deep.equal(before);
    expect((await world.login(world.globex)).tokens?.accessToken).to.be.a('string');
  });

  it('control reseal --dry-run counts the secrets, names the processes that block it, and changes nothing', async () => {
    const before = await sealed();
    const { code, stdout } = await reseal('--dry-run');
    expect(code).to.equal(1);
    expect(stdout).to.match(
      /^\d+ secrets would be sealed under MASTER_KEY\.\nRefused: 1 running process would not have /,
    );
    const plan = JSON.parse((await reseal('--dry-run', '--json')).stdout);
    expect(plan.blockedBy).to.deep.equal([own]);
    expect(plan.secrets).to.equal(6); // of each tenant: its password, that of its database, a signing key
    expect(await sealed()).to.deep.equal(before);
  });

  it('a process without the key of the secrets is not ready and says so without a secret, until it has that key', async () => {
    expect(await readiness()).to.deep.equal({ status: 200, body: { status: 'ok' } });
    const done = await reseal('--despite-running');
    expect(done.code, done.stderr).to.equal(0);
    await eventually(async () => (await readiness()).status === 503);
    expect((await readiness()).body).to.deep.equal({ status: 'unavailable', reason: 'master_key' });
    expect(await (await management('/metrics')).text()).to.match(/^master_key_known 0$/m);
    const lines = world.logs.filter(line => line.includes('"master_key_unknown"'));
    expect(lines).to.have.length(1);
    for (const key of [former, next]) expect(lines[0]).to.not.include(key);

    const doctor = await run(['doctor', '--json'], { MASTER_KEY: next });
    const { findings } = JSON.parse(doctor.stdout);
    expect(doctor.code).to.equal(1);
    expect(findings.find(({ check }: { check: string }) => check === 'master_key_unknown')).to.deep.include({
      severity: 'error',
      problem: `the process ${host} pid ${pid} (build ${build}) does not have the master key of the secrets, so nobody can log in there`,
    });

    await run(['control', 'register-key'], { MASTER_KEY: next, MASTER_KEY_PREVIOUS: former });
    const back = await run(['control', 'reseal', '--yes'], { MASTER_KEY: former, MASTER_KEY_PREVIOUS: next });
    expect(back.code, back.stderr).to.equal(0);
    await eventually(async () => (await readiness()).status === 200);
    expect(await (await management('/metrics')).text()).to.match(/^master_key_known 1$/m);
    for (const tenant of [world.acme, world.globex])
      expect((await world.login(tenant)).tokens?.accessToken).to.be.a('string');
  });
});
