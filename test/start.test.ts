import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../src/control/server-urls.ts';
import { runningEmbeddedUrl } from '../src/lib/embedded/cluster.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';
import { pageDigests } from '../src/lib/postgres/migration-names.ts';
import { examples } from './sales/resources/examples.ts';
import { Client } from './support/client.ts';
import { type ScriptResult, startProgram } from './support/command-line.ts';
import { eventually } from './support/eventually.ts';
import { freePort } from './support/free-port.ts';
import { signalProcess } from './support/processes.ts';
import { rawRequest, sendRaw } from './support/raw-http.ts';
import { runCommand } from './support/run-command.ts';
import { statuses, useStarts } from './support/starts.ts';
import { postgresUrl } from './support/test-server.ts';

describe('npm start', () => {
  const starts = useStarts();
  const { start, running, stopped, end, logIn, expectServing, beginRequest } = starts;
  const { expectCreated, isReady, postmaster } = starts;
  const tenants = ['demo'];

  /** Runs a start that fails, in a process that has loaded the modules already. */
  const failedStart = (settings: Record<string, string>): Promise<ScriptResult> =>
    runCommand('src/main.ts', [], { ...starts.environment, ...settings });

  function expectOneLine({ code, stdout, stderr }: ScriptResult, naming: RegExp): void {
    expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(stderr.trimEnd()).to.match(naming).and.not.include('\n');
    expect(stderr).not.to.match(/\bat .*\.ts|secret-word/);
  }

  it('a start on an empty folder prints address, tenant, user, password and a curl line that logs in, however often', async () => {
    const service = starts.first;
    await running();
    expect(service.url).to.equal(`http://127.0.0.1:${starts.environment.PORT}`);
    expect(service.password).to.be.a('string');
    await expectServing(service);

    const curl = /^ +curl -sS (\S+) -H '([^']+)' -H '([^']+)' -d '([^']+)'$/m.exec(
      service.output.stdout,
    );
    const [, url = '', tenant = '', type = '', body = ''] = curl ?? [];
    const headers = Object.fromEntries([tenant, type].map(header => header.split(': ')));
    const response = await fetch(url, { method: 'POST', headers, body });
    expect(response.status).to.equal(200);
    expect(await response.json()).to.have.all.keys('accessToken', 'refreshToken', 'entityType');

    for (let again = 0; again < 6; again++) {
      expect((await fetch(url, { method: 'POST', headers, body })).status).to.equal(200);
    }
    for (const path of ['live', 'ready']) {
      expect((await fetch(`${service.managementUrl}/health/${path}`)).status).to.equal(200);
    }

    expect(
      (await fetch(`${service.url}/health/ready`)).status,
      'never on the public port',
    ).not.to.equal(200);
    expect((await postmaster()) ?? 0).to.be.greaterThan(0);
  });

  it('the printed lines, pasted into a shell, list countries, make a customer of the demo tenant and find it', async () => {
    const { output } = await running();
    const lines = /^ +export TOKEN=\$\((.+\n)+/m.exec(`${output.stdout}\n`)?.[0] ?? '';

    for (const shell of ['bash', 'zsh', 'fish'].filter(
      name => !spawnSync(name, ['-c', 'true']).error,
    )) {
      const { code, stdout } = await startProgram(shell, ['-c', lines], {}).ended;
      expect(code, shell).to.equal(0);
      const [countries, made, found] = stdout
        .trimEnd()
        .split('\n')
        .map(text => JSON.parse(text));
      expect(countries).to.have.length(3);
      expect(made).to.include({ Name: 'Blue Harbour Ltd', EntityType: 'customer' });
      expect(found.map(({ Id }: { Id: number }) => Id)).to.include(made.Id);
    }
  });

  it('no list of the demo tenant is empty at the first start', async () => {
    const client = await logIn(await running());
    for (const list of [...Object.values(examples).map(({ path }) => path), '/api/v1/Activity']) {
      const { status, body } = await client.get(list);
      expect(status, list).to.equal(200);
      expect(body.length > 1, list).to.equal(true);
    }
  });

  it('the command line works while the service runs', async () => {
    await running();
    const listed = await runCommand('scripts/tenant.ts', ['list', '--json'], starts.environment);
    expect(listed.code).to.equal(0);
    expect(listed.stderr).to.equal('');
    expect(JSON.parse(listed.stdout).map(({ slug }: { slug: string }) => slug)).to.deep.equal([
      'demo',
    ]);

    const made = await runCommand(
      'scripts/tenant.ts',
      ['provision', 'beside', '--name', 'Beside', '--admin-email', 'admin@beside.test', '--json'],
      starts.environment,
    );
    expect(made.code).to.equal(0);
    tenants.push('beside');

    const { guid, admin } = JSON.parse(made.stdout);
    const client = new Client(`http://127.0.0.1:${starts.environment.PORT}`);
    expect((await client.post('/api/v1/auth/login', admin, { 'X-Tenant': guid })).status).to.equal(
      200,
    );
  });

  it('a second start on a used port fails with one line that names the setting', async () => {
    const first = await running();
    expectOneLine(await failedStart({}), new RegExp(`${starts.environment.PORT}.*PORT`));
    expectOneLine(await failedStart({ PORT: String(await freePort()) }), /MANAGEMENT_PORT/);
    expect(first.process.exitCode).to.equal(null);
    await expectServing(first);
  });

  it('a start on the data folder of a build that was not released fails with the command that removes it', async () => {
    await running();
    const folder = starts.environment.DATA_DIR ?? '';
    const url = await runningEmbeddedUrl(folder);
    const query = (text: string, address = url) =>
      withConnection(address, client => client.query(text));
    const { rows } = await query(`select database_name as name from tenants where slug = 'demo'`);
    const setDigest = (value: string | undefined, address?: string) =>
      query(`update migrations set digest = '${value}' where name = '0001-first-schema'`, address);
    const settings = { PORT: String(await freePort()), MANAGEMENT_PORT: String(await freePort()) };
    const folders = [
      { kind: 'control', address: url },
      { kind: 'tenant', address: databaseUrl(url, rows[0].name) },
    ] as const;

    for (const { kind, address } of folders) {
      await setDigest('other', address);
      await query('update tenants set schema_fingerprint = null');
      const result = await failedStart(settings);
      expectOneLine(
        result,
        /was made by another build, which was not released: its 0001-first-schema is not that of/,
      );
      expect(result.stderr).to.include(
        `Remove it with all data in it (rm -r ${folder}), and start again.`,
      );
      await setDigest((await pageDigests(kind)).get('0001-first-schema'), address);
    }
  });

  it('a start after a killed service joins the PostgreSQL that the service left running, and a second signal ends it at once', async () => {
    const killed = await running();
    expect((await end(killed, 'SIGKILL')).signal).to.equal('SIGKILL');
    const left = await postmaster();
    expect(left ?? 0).to.be.greaterThan(0);
    const service = await start();
    expect(await postmaster()).to.equal(left);
    await expectServing(service);

    const { responded } = await beginRequest(service, 'Cut off');
    service.process.kill('SIGTERM');
    await eventually(() => service.output.stdout.includes('"event":"stopping"'));
    // Signals within 1 s of the first one count as its repetition; the first later one ends the
    // process.
    await eventually(() => {
      service.process.kill('SIGTERM');
      return service.process.exitCode !== null;
    });
    expect((await service.ended).code).to.equal(1);
    expect(await responded).to.equal('cut off');
  });

  it('a stale pid file does not prevent a start, which serves the stored data and prints the password again; SIGTERM lets the service serve new connections for SHUTDOWN_DELAY, finish the running request, close idle connections and exit with 0', async () => {
    const path = join(starts.folder, 'postgres', 'postmaster.pid');
    await end(await running(), 'SIGKILL');
    const left = await postmaster();
    signalProcess(left, 'SIGKILL');
    await eventually(async () => !(await isAlive(left)));
    const lines = (await readFile(path, 'utf8')).split('\n');
    await writeFile(path, [process.pid, ...lines.slice(1)].join('\n'));

    const service = await start({ SHUTDOWN_DELAY: '4s' });
    expect(await postmaster()).not.to.equal(process.pid);
    expect(service.password).to.equal(starts.credentials.password);

    const { mode } = await stat(join(starts.folder, 'demo-password'));
    expect((mode & 0o777).toString(8), 'only the owner of the folder can read it').to.equal('600');

    const { body } = await (await logIn(service)).get(statuses);
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include('Stored');

    const idle = sendRaw(service.url, rawRequest('GET /'));
    const pending = await beginRequest(service, 'Finished');
    expect(await isReady(service)).to.equal(true);

    service.process.kill('SIGTERM');
    await eventually(async () => !(await isReady(service)));
    await expectServing(service);
    expect((await idle).closed).to.equal(true);

    const refused = await fetch(`${service.url}/`).then(
      () => false,
      () => true,
    );
    expect(refused, 'no new connection').to.equal(true);

    expect((await fetch(`${service.managementUrl}/health/live`)).status).to.equal(200);
    await expectCreated(pending);

    const { code, signal, stderr } = await service.ended;
    expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
    expect(await postmaster(), 'the embedded PostgreSQL has stopped').to.equal(undefined);
  });

  it('the command line works without the service, and leaves no PostgreSQL running', async () => {
    await stopped();
    const { code, stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['list', '--json'],
      starts.environment,
    );

    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    expect(JSON.parse(stdout).map(({ slug }: { slug: string }) => slug)).to.deep.equal(
      [...tenants].sort(),
    );
    expect(await postmaster()).to.equal(undefined);
  });

  it('a lost master key is named, and no other one takes its place', async () => {
    await stopped();
    const path = join(starts.folder, 'master.key');
    await rename(path, `${path}.lost`);
    for (const _ of [1, 2]) {
      expectOneLine(await failedStart({}), /master\.key is missing: restore the file/);
    }
    await rename(`${path}.lost`, path);
  });

  it('every npm script that runs one program replaces its shell by it, so signals to npm reach it', async () => {
    const { scripts } = JSON.parse(
      await readFile(new URL('../package.json', import.meta.url), 'utf8'),
    );
    const withShell = Object.keys(scripts).filter(name => !scripts[name].startsWith('exec '));
    // pipelines and sequences of short programs
    expect(withShell).to.deep.equal(['openapi:types', 'lint:openapi', 'check']);
  });

  it('wrong settings are named in one line each, and their values are never printed', async () => {
    const wrong: [Record<string, string>, RegExp][] = [
      [
        { PORT: 'secret-word', LOG_LEVEL: 'secret-word', TRUSTED_PROXIES: 'secret-word' },
        /PORT.*TRUSTED_PROXIES.*LOG_LEVEL/,
      ],
      [{ MANAGEMENT_PORT: '65536', PUBLIC_URL: 'secret-word' }, /MANAGEMENT_PORT.*PUBLIC_URL/],
      [{ MAIL_FROM: 'secret-word' }, /MAIL_FROM/],
      [{ DATABASE_URL: postgresUrl() }, /MASTER_KEY/],
      [{ DATABASE_URL: 'secret-word', MASTER_KEY: 'secret-word' }, /DATABASE_URL.*MASTER_KEY/],
      [
        { DATABASE_URL: 'postgresql://u:secret-word@127.0.0.1:1/x', MASTER_KEY: 'ab'.repeat(32) },
        /DATABASE_URL/,
      ],
    ];

    for (const [settings, naming] of wrong) expectOneLine(await failedStart(settings), naming);
  });

  it('a start on a control database without a schema fails with the command that migrates it', async () => {
    await stopped();
    const name = `start_${randomBytes(5).toString('hex')}`;
    await withConnection(postgresUrl(), client => client.query(`create database ${name}`));
    const MASTER_KEY = randomBytes(32).toString('base64');

    const failed = await failedStart({
      DATABASE_URL: databaseUrl(postgresUrl(), name),
      MASTER_KEY,
    });
    expectOneLine(failed, /bin\/backoffice control migrate/);

    await withConnection(postgresUrl(), client =>
      client.query(`drop database ${name} with (force)`),
    );
  });
});

async function isAlive(pid: number | undefined): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return status !== '' && !/\) Z /.test(status);
}
