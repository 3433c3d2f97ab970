import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { Client } from '../support/client.ts';
import { type RunningScript, runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { type ServerOfVersion, startServerOfVersion } from '../support/server-of-version.ts';

const versions = [16, 17, 18];

describe('drill: every version of PostgreSQL that is supported, TLS only, without a superuser', () => {
  const servers = new Map<number, ServerOfVersion>();

  before(async () => {
    for (const version of versions) {
      const server = await startServerOfVersion(version);
      if (server) servers.set(version, server);
      else console.log(`npm cannot get PostgreSQL ${version}: it is skipped`);
    }
  });
  after(() => Promise.all([...servers.values()].map(server => server.close())));

  for (const [index, version] of versions.entries()) {
    const next = versions[(index + 1) % versions.length] ?? 0;

    it(`PostgreSQL ${version} carries the whole life of a tenant, and its move to ${next} and back`, async function () {
      const [server, other] = [servers.get(version), servers.get(next)];
      if (!server || !other) return this.skip();

      const operator = {
        DATABASE_URL: server.url('backoffice'),
        MASTER_KEY: randomBytes(32).toString('hex'),
      };

      const run = async (args: string[], input = ''): Promise<string> => {
        const { code, stdout, stderr } = await runScript(
          'scripts/backoffice.ts',
          args,
          operator,
          input,
        );
        expect(code, `${args.join(' ')}: ${stderr}${stdout}`).to.equal(0);
        return stdout;
      };

      let service: RunningScript | undefined;

      try {
        await run(['control', 'migrate']);
        const login = (await run(['control', 'service-login', '-o', 'url', '--yes'])).trim();
        const { guid, admin } = JSON.parse(
          await run([
            'provision',
            'acme',
            '--name',
            'Acme',
            '--admin-email',
            'a@acme.test',
            '--json',
          ]),
        );
        await run(['provision', 'globex', '--name', 'Globex', '--admin-email', 'g@globex.test']);
        await run(['server', 'add', 'other'], other.url('postgres'));

        const ports = { PORT: '0', MANAGEMENT_PORT: '0', SHUTDOWN_DELAY: '0s' };
        service = startScript('src/main.ts', [], { ...operator, DATABASE_URL: login, ...ports });
        const { output, process: child } = service;
        await eventually(
          () => output.stdout.includes('"event":"listening"') || child.exitCode !== null,
          120_000,
        );
        expect(child.exitCode, output.stderr + output.stdout).to.equal(null);

        const url = `http://127.0.0.1:${/"event":"listening","port":(\d+)/.exec(output.stdout)?.[1]}`;
        const session = await new Client(url).post('/api/v1/auth/login', admin, {
          'X-Tenant': guid,
        });
        const client = new Client(url, session.body);

        expect((await client.post('/api/v1/EntityStatus', { Title: 'Kept' })).status).to.equal(201);
        const titles = async (): Promise<unknown> =>
          (await client.get('/api/v1/EntityStatus')).body.map(
            ({ Title }: { Title: string }) => Title,
          );
        expect(await titles()).to.include('Kept');

        const names = ['Aruba', 'FI', 'Fı', 'Zebra', 'apple', 'Åland', 'İzmir'];
        for (const Name of names.toReversed()) {
          expect((await client.post('/api/v1/OrderStatuses', { Name })).status).to.equal(201);
          const tax = await client.post('/api/v1/TaxCodes', { Code: Name, Name, Rate: 1 });
          expect(tax.status, Name).to.equal(201);
        }
        const first = await client.get('/api/v1/OrderStatuses?sort=Name&limit=3');
        const next = /<([^>]+)>; rel="next"/.exec(first.headers.get('link') ?? '')?.[1] ?? '';

        await run(['move', 'acme', '--to', 'other', '--pause', '60']);
        const second = await client.get(next);
        expect([...first.body, ...second.body].map(({ Name }) => Name)).to.deep.equal(
          names.slice(0, 6),
        );
        expect((await client.get('/api/v1/TaxCodes/code/f%C4%B1')).body.Code).to.equal('Fı');
        expect(await titles()).to.include('Kept');
        await run(['move', 'acme', '--back', '--pause', '60']);
        expect(await titles()).to.include('Kept');

        await run(['clone', 'acme', 'copy']);
        await run(['migrate', '--all']);

        const { findings } = JSON.parse(await run(['doctor', '--json']));
        expect(
          findings.filter(({ severity }: { severity: string }) => severity === 'error'),
        ).to.deep.equal([]);

        for (const slug of ['copy', 'acme']) {
          await run(['delete', slug, '--yes']);
          await run(['purge', slug, '--yes']);
        }
        expect((await client.get('/api/v1/EntityStatus')).status).to.be.oneOf([401, 403]);
        expect(
          JSON.parse(await run(['list', '--json'])).map(({ slug }: { slug: string }) => slug),
        ).to.deep.equal(['globex']);
      } finally {
        service?.process.kill('SIGTERM');
        await service?.ended;
      }
    });
  }
});
