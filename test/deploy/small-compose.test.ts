import { mkdir, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { settingNames } from '../../src/lib/config/config.ts';
import { parsePostgresUrl } from '../../src/lib/config/postgres-url.ts';
import { secretVariables } from '../../src/lib/config/secret-files.ts';
import { root, runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { createPlainServer, type PlainServer } from '../support/plain-server.ts';
import { type Compose, expectComposeFields, expectDeclared } from './compose-file.ts';
import { readDeploy, readYaml } from './read-deploy.ts';

describe('compose.yaml at the top of the repository', () => {
  let compose: Compose;
  let text: string;

  before(async () => {
    text = await readFile(join(root, 'compose.yaml'), 'utf8');
    compose = parse(text, { merge: true });
  });

  it('the small compose file has the fields of the Compose specification, and declares what it names', () => {
    expectComposeFields(compose);
    expectDeclared(compose);
  });

  it('both compose files have the image of the version in package.json, and the same PostgreSQL', async () => {
    const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    const [large] = (await readYaml('compose.yaml')) as [Compose];

    const own = `\${BACKOFFICE_IMAGE:-backoffice:${version}}`;
    expect(compose.services.service?.image).to.equal(own);
    expect(large.services['service-1']?.image).to.equal(own);
    expect(compose.services.postgres?.image).to.equal(large.services['postgres-1']?.image);
  });

  it('each variable of its containers is a setting of the service, or one of the image of PostgreSQL', () => {
    const settings = [...settingNames, ...secretVariables.map(name => `${name}_FILE`)];
    const used = Object.values(compose.services).flatMap(({ environment = {} }) =>
      Object.keys(environment),
    );

    expect(settings).to.include.members(used.filter(name => !name.startsWith('POSTGRES_')));
  });

  it('the commands of compose.yaml are those of the image, with the script of commands', async () => {
    const [, entryPoint = ''] = /^ENTRYPOINT (\[.*\])$/m.exec(await readDeploy('Dockerfile')) ?? [];

    expect(compose.services.backoffice?.entrypoint).to.deep.equal([
      ...JSON.parse(entryPoint),
      'scripts/backoffice.ts',
    ]);
  });

  it('other machines reach no port, PostgreSQL has no network, and no secret is in the file', () => {
    const ports = Object.entries(compose.services).flatMap(([name, { ports = [] }]) =>
      (ports as string[]).map(port => `${name} ${port}`),
    );

    expect(ports).to.deep.equal([`service 127.0.0.1:\${PORT:-3000}:3000`]);
    expect(compose.services.postgres?.network_mode).to.equal('none');
    expect(text).to.not.match(/:\/\/\w+:\w+@|PASSWORD: |MASTER_KEY: /);
  });

  it('the service cannot read the password of the operator', () => {
    const { volumes = [], environment = {} } = compose.services.service ?? {};

    expect(volumes.filter(volume => volume.startsWith('operator:'))).to.deep.equal([]);
    expect(environment.DATABASE_URL_FILE).to.equal('/secrets/database-url');
  });
});

describe('the set-up of compose.yaml', () => {
  let server: PlainServer;
  let folder: string;
  let environment: Record<string, string>;

  beforeEach(async () => {
    server = await createPlainServer('createdb createrole');
    folder = await mkdtemp(join(tmpdir(), 'backoffice-set-up-'));
    await Promise.all(['secrets', 'operator'].map(name => mkdir(join(folder, name))));
    environment = {
      DATABASE_URL: server.url('office'),
      MASTER_KEY_FILE: join(folder, 'secrets/master-key'),
      PORT: '0',
      MANAGEMENT_PORT: '0',
    };
  });
  afterEach(async () => {
    await server?.close();
    await rm(folder, { recursive: true, force: true });
  });

  const setUp = (...args: string[]) => runScript('scripts/set-up.ts', args, environment);
  const makeSecrets = () => setUp('secrets', join(folder, 'secrets'), join(folder, 'operator'));
  const makeDatabases = () => setUp('databases', join(folder, 'secrets'));
  const read = (name: string) => readFile(join(folder, name), 'utf8');

  /** Every secret by the name of its file. */
  async function secrets(): Promise<Record<string, string>> {
    const names = await readdir(folder, { recursive: true });
    const files = names.filter(name => name.includes('/')).sort();
    const texts = await Promise.all(files.map(read));
    return Object.fromEntries(files.map((name, index) => [name, texts[index] ?? '']));
  }

  it('the set-up makes the secrets that are missing, for their owner alone, and replaces none', async () => {
    expect(await makeSecrets()).to.include({ code: 0, stderr: '' });

    const made = await secrets();
    expect(Object.keys(made)).to.deep.equal([
      'operator/database-url',
      'operator/postgres-password',
      'secrets/master-key',
    ]);
    expect(Buffer.from(made['secrets/master-key'] ?? '', 'base64')).to.have.length(32);
    expect(parsePostgresUrl(made['operator/database-url'] ?? '')).to.include({
      user: 'operator',
      password: made['operator/postgres-password'],
      database: 'backoffice',
      host: '/var/run/postgresql',
    });
    for (const name of Object.keys(made)) {
      expect((await stat(join(folder, name))).mode & 0o777, name).to.equal(0o400);
    }

    expect(await makeSecrets()).to.include({ code: 0, stderr: '' });
    expect(await secrets()).to.deep.equal(made);
  });

  it('the set-up makes the databases and the login of the service, with which the service starts; once more, it changes nothing', async () => {
    await makeSecrets();
    expect(await makeDatabases()).to.include({ code: 0, stderr: '' });
    const made = await secrets();
    expect(await makeDatabases()).to.include({ code: 0, stderr: '' });
    expect(await secrets()).to.deep.equal(made);

    const { DATABASE_URL, ...settings } = environment;
    const service = startScript('src/main.ts', [], {
      ...settings,
      DATABASE_URL_FILE: join(folder, 'secrets/database-url'),
      SHUTDOWN_DELAY: '0s',
    });
    await eventually(() => service.output.stdout.includes('"event":"listening"'), 60_000);
    service.process.kill('SIGTERM');
    expect((await service.ended).code).to.equal(0);
    expect(made['secrets/database-url']).to.include('office_service').and.not.equal(DATABASE_URL);
    expect(service.output.stdout).not.to.match(/"level":[456]0/);
  });

  it('when a command fails, the set-up fails with the sentence of the command, and leaves no half of a secret', async () => {
    await makeSecrets();
    environment = {
      ...environment,
      DATABASE_URL: server.url('office').replace(/:[^:@/]+@/, ':wrong@'),
    };

    const { code, stderr } = await makeDatabases();

    expect(code).to.equal(1);
    expect(stderr)
      .to.match(/password/i)
      .and.not.match(/^\s+at /m);
    expect(await readdir(join(folder, 'secrets'))).to.deep.equal(['master-key']);
  });
});
