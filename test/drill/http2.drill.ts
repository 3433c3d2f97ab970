import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { makeCertificate } from '../support/certificate.ts';
import { root } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { Http2Client } from '../support/http2-client.ts';
import { nginxConfig } from '../support/nginx-config.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { sendSteadily, summaryOf } from '../support/steady-load.ts';
import { createWorld, type TestTenant, type World } from '../support/world.ts';

const statuses = '/api/v1/EntityStatus';
const stream = '/api/v1/Changes/stream';
const json = { 'content-type': 'application/json' };
const csv = { 'content-type': 'text/csv' };
const upload = '/api/v1/Imports?resource=Currency&mode=upsert';
const hosts = ['127.0.0.1', '127.0.0.2'];
const requestsPerSecond = 60;
/** Requests that one address may send in a minute to each of the processes. */
const limit = 300;
/** The time in which a stream is free: less than the pause between two comments of a stream. */
const freeMs = 10_000;
/** The balancers that ask need three answers, one a second. */
const noticeMs = 5_000;

/** A process of the service on an address of its own, which a restart keeps. */
interface Member {
  readonly host: string;
  service: ServiceProcess;
}

/** Where a balancer finds what it needs. */
interface Place {
  readonly folder: string;
  readonly port: number;
  /** Of what else its configuration listens on. */
  readonly otherPorts: readonly [number, number];
  /** Addresses of the processes. */
  readonly hosts: readonly string[];
  /** The port of each process, and that of its health checks. */
  readonly ports: { readonly api: number; readonly health: number };
}

/** A load balancer that speaks HTTP/2 with TLS to clients. */
interface Balancer {
  readonly program: string;
  readonly arguments: (file: string) => string[];
  /** @returns the text of its configuration file */
  readonly configure: (place: Place) => Promise<string> | string;
}

const balancers: Record<string, Balancer> = {
  'HAProxy as deploy/haproxy has it': {
    program: 'haproxy',
    arguments: file => ['-db', '-f', file],
    configure: async ({ folder, port, otherPorts, hosts, ports }) => {
      const printed = await readFile(join(root, 'deploy/haproxy/haproxy.cfg'), 'utf8');
      const changes: [string | RegExp, string][] = [
        ['maxconn 20000', 'maxconn 2000'], // a machine may have too few open files
        [':8080', `127.0.0.1:${otherPorts[0]}`],
        [':8404', `127.0.0.1:${otherPorts[1]}`],
        ['# bind :8443', `bind 127.0.0.1:${port}`],
        ['/usr/local/etc/haproxy/certificate.pem', join(folder, 'haproxy.pem')],
        [' port 3001', ` port ${ports.health}`],
        ...hosts.map((host, index): [string, string] => [
          `service-${index + 1}:3000`,
          `${host}:${ports.api}`,
        ]),
      ];
      return changes.reduce((text, [from, to]) => {
        expect(text.search(from), `${from} in haproxy.cfg`).to.not.equal(-1);
        return text.replace(from, to);
      }, printed);
    },
  },

  'nginx with what the Ingress sets': {
    program: 'nginx',
    arguments: file => ['-c', file],
    configure: ({ folder, port, hosts, ports }) =>
      nginxConfig({
        folder,
        services: hosts.map(host => `${host}:${ports.api}`),
        server: `
    listen 127.0.0.1:${port} ssl http2;
    ssl_certificate ${folder}/certificate.pem;
    ssl_certificate_key ${folder}/key.pem;
    client_max_body_size 6m;
    # After 1,000 requests, it would end the connection, and clients open another one.
    keepalive_requests 100000;`,
        location: `
      proxy_request_buffering off;
      proxy_read_timeout 60s;
      proxy_send_timeout 60s;`,
      }),
  },

  Caddy: {
    program: 'caddy',
    arguments: file => ['run', '--adapter', 'caddyfile', '--config', file],
    configure: ({ folder, port, hosts, ports }) => `
{
  admin off
  auto_https disable_redirects
  skip_install_trust
}
https://localhost:${port} {
  bind 127.0.0.1
  tls ${folder}/certificate.pem ${folder}/key.pem
  reverse_proxy ${hosts.map(host => `${host}:${ports.api}`).join(' ')} {
    trusted_proxies private_ranges
    lb_try_duration 3s
    health_uri /health/ready
    health_port ${ports.health}
    health_interval 1s
  }
}
`,
  },
};

for (const [name, balancer] of Object.entries(balancers)) {
  describe(`drill: HTTP/2 to clients, with ${name}`, function () {
    this.timeout(300_000);

    let world: World;
    let folder: string;
    let ports: Place['ports'];
    let members: Member[];
    let running: ChildProcess;
    let url: string;
    let certificate: string;
    const processes = createServiceProcesses();
    const clients: Http2Client[] = [];

    before(async function () {
      if (spawnSync('which', [balancer.program]).status !== 0) {
        console.log(`      ${balancer.program} is not installed, and left out`);
        this.skip();
      }

      world = await createWorld({ TRUSTED_PROXIES: '127.0.0.1' });
      ports = { api: await freePort(), health: await freePort() };
      members = await Promise.all(
        hosts.map(async host => ({ host, service: await startOn(host) })),
      );
      folder = await makeFolder();
      certificate = await readFile(join(folder, 'certificate.pem'), 'utf8');

      const port = await freePort();
      const otherPorts = [await freePort(), await freePort()] as const;
      const file = join(folder, 'balancer.conf');
      await writeFile(file, await balancer.configure({ folder, port, otherPorts, hosts, ports }));
      running = spawn(balancer.program, balancer.arguments(file), {
        stdio: 'ignore',
        env: { ...process.env, HOME: folder },
      });

      url = `https://localhost:${port}`;
      await eventually(async () => (await (await connect()).send('GET', '/docs')).status === 200);
    });

    afterEach(() => {
      for (const client of clients.splice(0)) client.leave();
    });

    after(async () => {
      running?.kill('SIGKILL');
      await processes.killAll();
      await world?.close();
      if (folder) await rm(folder, { recursive: true, force: true });
    });

    function startOn(host: string): Promise<ServiceProcess> {
      return processes.start({
        ...world.environment,
        HOST: host,
        PORT: String(ports.api),
        MANAGEMENT_HOST: host,
        MANAGEMENT_PORT: String(ports.health),
        RATE_LIMIT_GLOBAL: `${limit}/60s`,
      });
    }

    async function makeFolder(): Promise<string> {
      const made = await mkdtemp(join(tmpdir(), 'backoffice-drill-'));
      const files = [join(made, 'certificate.pem'), join(made, 'key.pem')] as const;
      await makeCertificate('localhost', files);
      const parts = await Promise.all(files.map(file => readFile(file, 'utf8')));
      await writeFile(join(made, 'haproxy.pem'), parts.join(''));
      return made;
    }

    async function connect(): Promise<Http2Client> {
      const client = await Http2Client.connect(url, certificate);
      clients.push(client);
      return client;
    }

    /**
     * Logs in.
     * @returns a function that makes the headers of the next request, of another address
     */
    async function login(tenant: TestTenant): Promise<() => Record<string, string>> {
      const { tokens } = await world.login(tenant);
      let number = 0;
      return () => ({
        authorization: `Bearer ${tokens?.accessToken}`,
        'x-forwarded-for': `198.51.100.${number++ % 250}`,
      });
    }

    it('500 requests of two tenants at once in one connection get their own responses', async () => {
      const client = await connect();
      const tenants = await Promise.all([world.acme, world.globex].map(login));
      const titles = [`Acme at ${url}`, `Globex at ${url}`];
      for (const [index, title] of titles.entries()) {
        const made = await client.send(
          'POST',
          statuses,
          { ...tenants[index]?.(), ...json },
          JSON.stringify({ Title: title }),
        );
        expect(made.status).to.equal(201);
      }

      const responses = await Promise.all(
        Array.from({ length: 500 }, (_, number) =>
          client.send('GET', statuses, tenants[number % 2]?.()),
        ),
      );

      const seen = responses.map(({ status, text }, number) => [
        status,
        text.includes(titles[number % 2] ?? ''),
        text.includes(titles[(number + 1) % 2] ?? ''),
      ]);
      expect(new Set(seen.map(String))).to.deep.equal(new Set(['200,true,false']));
    });

    it('an upload that is refused before its end gets the reason, and its connection goes on', async () => {
      const client = await connect();
      const admin = await login(world.acme);
      const tooMany = { ...admin(), 'x-forwarded-for': '203.0.113.9' };
      await eventually(async () => {
        const sent = Array.from({ length: limit }, () => client.send('GET', statuses, tooMany));
        return (await Promise.all(sent)).every(({ status }) => status === 429);
      });

      const large = Buffer.alloc(4_000_000, 'a');
      const long = { 'content-length': String(large.length) };
      const refusals: [string, string, Record<string, string>, number][] = [
        ['without a tenant', upload, csv, 403],
        ['of what is not there', upload.replace('Currency', 'None'), { ...csv, ...admin() }, 400],
        ['that is too large', statuses, { ...json, ...admin() }, 413],
        ['that says that it is too large', statuses, { ...json, ...admin(), ...long }, 413],
        ['after too many requests', upload, { ...csv, ...tooMany }, 429],
      ];
      for (const [what, path, headers, expected] of refusals) {
        const [refused, ...others] = await Promise.all([
          client.send('POST', path, headers, large),
          ...Array.from({ length: 10 }, () => client.send('GET', statuses, admin())),
        ]);

        expect(refused.status, what).to.equal(expected);
        expect(JSON.parse(refused.text).status, what).to.equal(expected);
        expect(new Set(others.map(({ status }) => status)), what).to.deep.equal(new Set([200]));
      }
      expect(client.isOpen).to.equal(true);
    });

    it('a stream of changes brings each change while requests run in its connection', async () => {
      const client = await connect();
      const admin = await login(world.acme);
      const changes = await client.open(stream, admin());
      expect(changes.status).to.equal(200);
      await eventually(() => changes.text() !== '');

      const made = await Promise.all(
        Array.from({ length: 30 }, (_, number) =>
          client.send(
            'POST',
            statuses,
            { ...admin(), ...json },
            JSON.stringify({ Title: `Followed ${number} at ${url}` }),
          ),
        ),
      );

      expect(new Set(made.map(({ status }) => status))).to.deep.equal(new Set([201]));
      const ids = made.map(({ text }) => JSON.parse(text).Id as string);
      await eventually(() => ids.every(id => changes.text().includes(id)));
    });

    it('clients that go away leave neither their streams nor their uploads behind', async () => {
      const admin = await login(world.acme);

      // A user may have 5 streams in each of the two processes.
      for (let number = 0; number < 30; number++) {
        const client = await connect();
        client.begin(upload, { ...csv, ...admin() }, Buffer.alloc(50_000, 'a'));
        await eventually(async () => {
          const { status, cancel } = await client.open(stream, admin());
          if (status === 200 && number % 2 === 0) cancel();
          return status === 200;
        }, freeMs);
        if (number % 2 === 1) client.leave();
      }
    });

    it('a rolling restart fails no request of a connection that stays open', async () => {
      const client = await connect();
      const admin = await login(world.acme);

      const restart = async (): Promise<void> => {
        for (const member of members) {
          member.service.process.kill('SIGTERM');
          expect((await member.service.ended).code).to.equal(0);

          member.service = await startOn(member.host);
          await sleep(noticeMs);
        }
      };
      const served = await sendSteadily(requestsPerSecond, restart(), async number => {
        const isRead = number % 10 !== 0;
        const { status } = isRead
          ? await client.send('GET', statuses, admin())
          : await client.send(
              'POST',
              statuses,
              { ...admin(), ...json },
              JSON.stringify({ Title: `Restart ${number} at ${url}` }),
            );
        return status < 300 ? status : `status ${status}`;
      });

      console.log(`      ${JSON.stringify(summaryOf(served))}`);
      expect(served.filter(({ status }) => typeof status === 'string')).to.deep.equal([]);
      expect(client.isOpen).to.equal(true);
    });
  });
}
