import { mkdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { Client } from '../../support/client.ts';
import { startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { type OwnServer, startOwnServer } from '../../support/own-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServiceProcesses } from '../../support/service-processes.ts';
import { use, useFolder } from '../../support/use.ts';

const script = 'scripts/backoffice.ts';
const statuses = '/api/v1/EntityStatus';

/** What `provision --json` says of a tenant and its administrator. */
interface Provisioned {
  readonly guid: string;
  readonly admin: { readonly email: string; readonly password: string };
}

describe('a PostgreSQL server that has stopped', () => {
  const folder = useFolder();
  const server = use(() =>
    startOwnServer('stopped', [
      'listen_addresses=127.0.0.1,::1',
      `unix_socket_directories=${folder}`,
    ]),
  );
  const services = useServiceProcesses();
  const tenants: Provisioned[] = [];
  let settings: Record<string, string>;

  before(async () => {
    settings = {
      DATABASE_URL: databaseUrl(server.url, 'backoffice'),
      MASTER_KEY: Buffer.alloc(32, 7).toString('base64'),
    };
    expect((await runCommand(script, ['control', 'migrate'], settings)).code).to.equal(0);

    for (const slug of ['acme', 'globex']) {
      const args = ['provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`];
      const { stdout } = await runCommand(script, [...args, '--json'], settings);
      tenants.push(JSON.parse(stdout));
    }
  });

  /** The forms of a URL that `docs/operate` shows, of this server. */
  const forms: Record<string, (url: URL) => string> = {
    'an address': url => url.href,
    'a name': url => url.href.replace(url.hostname, 'localhost'),
    'an address of IPv6': url => url.href.replace(url.hostname, '[::1]'),
    'the folder of a Unix socket': ({ username, password, port, pathname }) =>
      `postgresql://${username}:${password}@:${port}${pathname}?host=${folder}`,
    'the encoded folder of a Unix socket': ({ username, password, port, pathname }) =>
      `postgresql://${username}:${password}@${encodeURIComponent(folder)}:${port}${pathname}`,
  };

  for (const [form, write] of Object.entries(forms)) {
    it(`is 503 for clients, and the next step for operators, when its URL has ${form}`, async () => {
      const environment = {
        ...settings,
        DATABASE_URL: write(new URL(settings.DATABASE_URL ?? '')),
      };
      const { url } = await services.start(environment);
      const clients = await Promise.all(tenants.map(tenant => logIn(url, tenant)));
      for (const client of clients) expect((await client.get(statuses)).status).to.equal(200);

      await server.crash();
      await expectUnavailable(clients, environment);

      // A server that stops in order takes the file of its socket away.
      await rm(socketOf(server), { force: true });
      await expectUnavailable(clients, environment);

      await server.restart();
      for (const client of clients) {
        await eventually(async () => (await client.get(statuses)).status === 200);
      }
    });
  }

  it('is named with the next step for operators when the folder of its Unix socket has too long a path, leads to itself, or has something else in its place', async () => {
    const loop = join(folder, 'loop');
    const busy = join(folder, 'busy');
    await symlink(loop, loop);
    await mkdir(join(busy, '.s.PGSQL.5432'), { recursive: true });
    const steps = {
      [join(folder, 'x'.repeat(108))]: 'a folder with a shorter path',
      [loop]: 'Start the server',
      [busy]: 'Start the server',
    };

    for (const [host, step] of Object.entries(steps)) {
      const url = `postgresql://a:b@/backoffice?host=${host}`;
      for (const args of [['list'], ['doctor'], ['control', 'migrate']]) {
        const { code, stderr } = await runCommand(script, args, { ...settings, DATABASE_URL: url });
        expect(code).to.equal(1);
        expect(stderr).to.include(step).and.not.include('Unexpected error');
      }
    }
  });

  function socketOf({ url }: OwnServer): string {
    return join(folder, `.s.PGSQL.${new URL(url).port}`);
  }

  async function logIn(url: string, { guid, admin }: Provisioned): Promise<Client> {
    const { body } = await new Client(url).post('/api/v1/auth/login', admin, { 'X-Tenant': guid });
    return new Client(url, body);
  }

  async function expectUnavailable(
    clients: readonly Client[],
    environment: Record<string, string>,
  ): Promise<void> {
    for (const client of clients) {
      const { status, body, headers } = await client.get(`${statuses}?limit=3`, {
        'Cache-Control': 'no-cache',
      });
      expect(status).to.equal(503);
      expect(body.code).to.equal('unavailable');
      expect(headers.get('retry-after')).to.match(/^\d+$/);
    }

    for (const args of [['list'], ['doctor'], ['control', 'migrate']]) {
      const { code, stderr } = await runCommand(script, args, environment);
      expect(stderr).to.include('Start the server');
      expect(code).to.equal(1);
    }

    const start = startScript('src/main.ts', [], {
      PORT: '0',
      MANAGEMENT_PORT: '0',
      ...environment,
    });
    const { code, stderr } = await start.ended;
    expect(stderr).to.include('Start the server');
    expect(code).to.equal(1);
  }
});
