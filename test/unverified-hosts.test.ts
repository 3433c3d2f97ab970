import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { unverifiedHost, unverifiedRedisHost } from '../src/lib/postgres/unverified-host.ts';
import { makeCertificate } from './support/certificate.ts';
import { root, startScript } from './support/command-line.ts';
import { createDedicatedServer } from './support/dedicated-server.ts';
import { eventually } from './support/eventually.ts';
import { runCommand } from './support/run-command.ts';
import { postgresUrl } from './support/test-server.ts';
import { use } from './support/use.ts';

/** Names the loopback in a way that counts as another machine. */
const elsewhere = (url: string): string => url.replace('127.0.0.1', '127.1');

describe('connections to other machines', () => {
  const server = use(createDedicatedServer);
  before(() => server.provision('acme'));

  const run = (args: string[], environment = server.environment, input = '') =>
    runCommand('scripts/backoffice.ts', args, environment, input);

  it('a URL of PostgreSQL or Redis is verified by its TLS, or needs none on this machine', () => {
    const urls = {
      'postgresql://u:p@db.internal/x': 'db.internal',
      'postgresql://u:p@10.0.0.1/x?sslmode=disable': '10.0.0.1',
      'postgresql://u:p@db.internal/x?sslmode=no-verify': 'db.internal',
      'postgresql://u:p@db.internal/x?uselibpqcompat=true&sslmode=require': 'db.internal',
      'postgresql:///x?host=db.internal&user=u': 'db.internal',
      'postgresql://u:p@127.0.0.1.example.com/x': '127.0.0.1.example.com',
      'postgresql://u:p@db.internal/x?sslmode=verify-full': undefined,
      'postgresql://u:p@localhost/x': undefined,
      'postgresql://u:p@127.0.0.2:5433/x': undefined,
      'postgresql://u:p@[::1]/x': undefined,
      'postgresql:///x?host=/run/postgresql': undefined,
      'postgresql://u:p@%2Frun%2Fpostgresql/x': undefined,
    };

    for (const [url, host] of Object.entries(urls)) expect(unverifiedHost(url), url).to.equal(host);

    expect(unverifiedRedisHost('redis://u:p@redis.internal:6379')).to.equal('redis.internal');
    for (const url of [
      'rediss://u:p@redis.internal',
      'redis://localhost',
      'redis://127.0.0.1',
      'redis://[::1]:6379',
    ]) {
      expect(unverifiedRedisHost(url), url).to.equal(undefined);
    }
  });

  it('server add warns of a server without verified TLS; run again, it replaces the URL of the same server only', async () => {
    const second = postgresUrl();
    const plain = await run(
      ['server', 'add', 'second', '--capacity', '7'],
      server.environment,
      elsewhere(second),
    );
    expect(plain.code, plain.stderr).to.equal(0);
    expect(plain.stderr).to.match(
      /^Warning: connections to 127\.1 are not verified: .* sslmode=verify-full .*: bin\/backoffice server add second\n$/,
    );

    const local = await run(['server', 'add', 'second'], server.environment, second);
    expect(local).to.include({ code: 0, stderr: '', stdout: 'Changed the URL of second.\n' });
    expect(
      await server.control("select capacity, address from servers where name = 'second'"),
    ).to.deep.equal([{ capacity: 7, address: second.replace(/\/\/.*@/, '//') }]);

    const other = await run(['server', 'add', 'default'], server.environment, server.url);
    expect(other.code).to.equal(1);
    expect(other.stderr).to.include('There is a server default already');

    await server.control("delete from servers where name = 'second'");
  });

  it('doctor warns of each server without verified TLS, and exits with 0', async () => {
    const healthy = await run(['doctor']);
    expect(healthy).to.include({
      code: 0,
      stdout: 'Checked 1 tenant on 1 server: nothing is wrong.\n',
    });

    const environment = {
      ...server.environment,
      DATABASE_URL: elsewhere(server.environment.DATABASE_URL ?? ''),
    };
    const { code, stdout } = await run(['doctor', '--json'], environment);
    const { findings } = JSON.parse(stdout);

    expect(code, stdout).to.equal(0);
    expect(findings).to.have.length(1);
    expect(findings[0]).to.include({
      check: 'unverified_tls',
      server: 'default',
      severity: 'warning',
      tenant: null,
    });
    expect(findings[0].problem).to.include('connections to 127.1 are not verified');
  });

  it('the service logs one line about all hosts without verified TLS when it starts', async () => {
    await server.control(
      `insert into servers (name, prefix, address) values ('local', 'local', 'postgresql://127.0.0.1:1')`,
    );

    const service = startScript('src/main.ts', [], {
      ...server.environment,
      PORT: '0',
      MANAGEMENT_PORT: '0',
      SHUTDOWN_DELAY: '0s',
      DATABASE_URL: elsewhere(server.environment.DATABASE_URL ?? ''),
      REDIS_URL: 'redis://:very-secret@0x7f.1:1',
    });

    await eventually(
      () =>
        service.output.stdout.includes('"event":"listening"') || service.process.exitCode !== null,
    );
    service.process.kill('SIGTERM');
    const { stdout } = await service.ended;
    await server.control(`delete from servers where name = 'local'`);

    expect(stdout).to.include('"event":"listening"').and.not.include('very-secret');
    const lines = stdout.split('\n').filter(line => line.includes('"event":"unverified_tls"'));
    expect(lines).to.have.length(1);
    expect(JSON.parse(lines[0] ?? '')).to.deep.include({ level: 40, hosts: ['127.1', '0x7f.1'] });
  });

  it('the commands and the service refuse a server that has no TLS, or whose certificate is not trusted, with the reason', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tls-'));
    const [certificate, other, key] = ['server.crt', 'other.crt', 'server.key'].map(name =>
      join(folder, name),
    ) as [string, string, string];

    await makeCertificate('db.internal', [other, key]);
    await makeCertificate('db.internal', [certificate, key]);

    const refusal = async (query: string): Promise<string> => {
      const environment = {
        ...server.environment,
        DATABASE_URL: `${server.environment.DATABASE_URL}?${query}`,
      };
      const { code, stderr } = await run(['doctor'], environment);
      expect(code, stderr).to.equal(1);
      return stderr;
    };

    const unreadable = `The control database cannot be used: its URL names ${folder}/missing.pem as sslrootcert, which cannot be read (ENOENT). `;

    expect(await refusal('sslmode=verify-full')).to.include(
      ': it does not support TLS, which its URL requires. ',
    );
    expect(await refusal(`sslmode=verify-full&sslrootcert=${folder}/missing.pem`)).to.include(
      unreadable,
    );

    await server.sql(`alter system set ssl_cert_file = '${certificate}'`);
    await server.sql(`alter system set ssl_key_file = '${key}'`);
    await server.sql('alter system set ssl = on');
    await server.sql('select pg_reload_conf()');
    await eventually(async () => (await server.sql<{ ssl: string }>('show ssl'))[0]?.ssl === 'on');

    const unknown =
      ': its certificate is not signed by an authority in the file that sslrootcert names in its URL. ';
    const wrongName = ': its certificate is for another host name than the URL has. ';

    expect(await refusal('sslmode=verify-full')).to.include(unknown);
    expect(await refusal(`sslmode=verify-full&sslrootcert=${other}`)).to.include(unknown);
    expect(await refusal(`sslmode=verify-full&sslrootcert=${certificate}`)).to.include(wrongName);

    const { code, stdout, stderr } = await runCommand('src/main.ts', [], {
      ...server.environment,
      DATABASE_URL: `${server.environment.DATABASE_URL}?sslmode=verify-full&sslrootcert=${folder}/missing.pem`,
    });
    expect(code).to.equal(1);
    expect(stdout).to.equal('');
    expect(stderr).to.include(unreadable);
    await rm(folder, { recursive: true });
  });

  it('every example and kit uses verified TLS to PostgreSQL and Redis', async () => {
    const folders = [
      'docs',
      'docs/guide',
      'docs/operate',
      ...['', '/kubernetes', '/systemd'].map(each => `deploy${each}`),
    ];

    const files = await Promise.all(
      folders.map(async folder =>
        (await readdir(join(root, folder), { withFileTypes: true }))
          .filter(entry => entry.isFile())
          .map(({ name }) => join(folder, name)),
      ),
    );

    const unverified: string[] = [];
    let found = 0;

    for (const file of ['README.md', '.env.example', ...files.flat()]) {
      const text = (await readFile(join(root, file), 'utf8')).replace(/\$\([^)]*\)|\$\w+|…/g, 'x');
      for (const [url] of text.matchAll(
        /\b(postgres(ql)?|rediss?):\/\/[^\s`"'\\)]+[^\s`"'\\).,]/g,
      )) {
        const plain = url.replace(/&sslrootcert=[^&]*/, ''); // the driver reads the file
        const host = plain.startsWith('redis') ? unverifiedRedisHost(plain) : unverifiedHost(plain);
        if (host !== undefined) unverified.push(`${file}: ${url}`);
        found++;
      }
    }

    expect(found).to.be.greaterThan(8);
    expect(unverified).to.deep.equal([]);
  });
});
