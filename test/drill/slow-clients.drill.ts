import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { PrintedLines, readPage } from '../deploy/engines/printed-lines.ts';
import { root } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { nginxFrame } from '../support/nginx-config.ts';
import { rawRequest } from '../support/raw-http.ts';
import { createServiceProcesses } from '../support/service-processes.ts';
import { createWorld, type World } from '../support/world.ts';

/** The connections that each balancer accepts here, where its limit can be set. */
const maxConnections = 1_000;
/** More connections than that: of one client, which has an address of its own. */
const flood = 1_500;
const attacker = '127.0.0.2';
const bundle = '/swagger/swagger-ui-bundle.js'; // 1.7 MB, without a login

interface Service {
  readonly port: number;
  readonly managementPort: number;
}

interface Balancer {
  readonly program: string;
  readonly arguments: (file: string) => string[];
  /** Returns the lines of the kit, or of the handbook, with addresses of this machine. */
  readonly configure: (port: number, service: Service, folder: string) => Promise<string>;
  /** The time in which others are served during a flood of slow heads, in seconds. */
  readonly servedWithin: number;
  /**
   * The time in which a client that sends a body slowly is disconnected, in seconds; undefined:
   * it is not.
   */
  readonly bodyEndsWithin: number | undefined;
}

/** Returns the lines that docs/operate/day-one.md prints for a program. */
async function printedLines(language: string): Promise<string> {
  const page = await readPage('operate/day-one');
  return new PrintedLines(page, 'Put it behind a load balancer', language).block('service:3000');
}

/** Replaces a text that the printed lines must have. */
function exchange(text: string, from: string | RegExp, to: string): string {
  expect(text.search(from), `${from}`).to.not.equal(-1);
  return text.replace(from, to);
}

const balancers: Readonly<Record<string, Balancer>> = {
  'HAProxy as deploy/haproxy has it': {
    program: 'haproxy',
    arguments: file => ['-db', '-f', file],
    configure: async (port, { port: service, managementPort }) => {
      let text = await readFile(join(root, 'deploy/haproxy/haproxy.cfg'), 'utf8');
      text = exchange(text, 'maxconn 20000', `maxconn ${maxConnections}`);
      text = exchange(text, 'bind :8080', `bind 127.0.0.1:${port}`);
      text = exchange(text, 'bind :8404', `bind 127.0.0.1:${await freePort()}`);
      text = exchange(text, 'service-1:3000', `127.0.0.1:${service} port ${managementPort}`);
      return exchange(text, /^ *server service-2 .*\n/m, '');
    },
    servedWithin: 2,
    bodyEndsWithin: 25,
  },
  'nginx with the lines of the handbook': {
    program: 'nginx',
    arguments: file => ['-c', file],
    configure: async (port, { port: service }, folder) => {
      const lines = await printedLines('nginx');
      const plain = exchange(lines, 'listen 443 ssl;', `listen 127.0.0.1:${port};`);

      return nginxFrame(
        { folder, connections: maxConnections },
        exchange(plain, 'service:3000', `127.0.0.1:${service}`),
      );
    },
    servedWithin: 2,
    bodyEndsWithin: 25,
  },
  'Caddy with the lines of the handbook': {
    program: 'caddy',
    arguments: file => ['run', '--adapter', 'caddyfile', '--config', file],
    configure: async (port, { port: service }) => {
      const lines = await printedLines('caddyfile');
      const address = exchange(lines, 'backoffice.example.com', `http://127.0.0.1:${port}`);
      const local = exchange(address, 'service:3000', `127.0.0.1:${service}`);
      return exchange(local, 'servers {', 'admin off\n  auto_https off\n  servers {');
    },
    servedWithin: 2,
    bodyEndsWithin: undefined,
  },
};

describe('drill: slow clients through the balancers', function () {
  this.timeout(600_000);

  let world: World;
  let folder: string;
  let service: Service & { readonly url: string };
  const processes = createServiceProcesses();

  before(async () => {
    world = await createWorld();
    folder = await mkdtemp(join(tmpdir(), 'backoffice-drill-'));
    await chmod(folder, 0o755); // the workers of nginx are nobody's
    const managementPort = await freePort();
    const { port, url } = await processes.start({
      ...world.environment,
      MANAGEMENT_PORT: String(managementPort),
      TRUSTED_PROXIES: '127.0.0.1',
      TRUSTED_HOPS: '1',
    });
    service = { port, url, managementPort };
  });
  after(async () => {
    await processes.killAll();
    await world?.close();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  for (const [name, balancer] of Object.entries(balancers)) {
    describe(name, () => {
      let port: number;
      let url: string;
      let child: ChildProcess | undefined;
      const sockets = new Set<Socket>();

      before(async function () {
        if (spawnSync('which', [balancer.program]).status !== 0) {
          console.log(`${balancer.program} is not installed, and left out`);
          return this.skip();
        }
        port = await freePort();
        url = `http://127.0.0.1:${port}`;
        const file = join(folder, `${balancer.program}.conf`);
        await writeFile(file, await balancer.configure(port, service, folder));
        child = spawn(balancer.program, balancer.arguments(file), {
          stdio: 'ignore',
          env: { ...process.env, HOME: folder },
        });
        await eventually(
          async () => (await fetch(`${url}/docs`).catch(() => undefined))?.status === 200,
          30_000,
        );
      });
      afterEach(async () => {
        for (const socket of sockets) socket.destroy();
        sockets.clear();
        await eventually(async () => (await heldConnections()) === 0, 30_000);
      });
      after(() => child?.kill('SIGKILL'));

      /** Returns how many connections of the attacker the balancer holds, by the kernel. */
      async function heldConnections(): Promise<number> {
        const own = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
        const established = '01';
        const tables = await Promise.all(
          ['tcp', 'tcp6'].map(table => readFile(`/proc/net/${table}`, 'utf8').catch(() => '')),
        );
        return tables
          .join('\n')
          .split('\n')
          .map(line => line.trim().split(/\s+/))
          .filter(
            ([, local, remote, state]) =>
              local?.endsWith(own) && remote?.includes('0200007F:') && state === established,
          ).length;
      }

      /** Opens connections of the attacker, which read nothing by themselves. */
      function open(count: number, first: string): void {
        for (let number = 0; number < count; number++) {
          const socket = connect({ port, host: '127.0.0.1', localAddress: attacker });
          socket.on('error', () => {});
          socket.pause();
          socket.write(first);
          sockets.add(socket);
        }
      }

      /**
       * Requests a page again and again, as another client does that tries anew when its
       * connection ends. Returns the longest time until a response, in s.
       */
      async function longestWait(untilMs: number): Promise<number> {
        let longest = 0;
        for (const end = performance.now() + untilMs; performance.now() < end; ) {
          const begunAt = performance.now();
          await eventually(async () => (await statusOfPage().catch(() => 0)) === 200, 60_000);
          longest = Math.max(longest, (performance.now() - begunAt) / 1_000);
          await sleep(500);
        }
        return longest;
      }

      /** Returns the status of a page, on a new connection. */
      async function statusOfPage(): Promise<number> {
        const sent = request(`${url}/docs`, { agent: false });
        sent.end();
        const [response] = await once(sent, 'response', { signal: AbortSignal.timeout(30_000) });
        await response.toArray();
        return response.statusCode;
      }

      /** Returns the time until the balancer holds no connection of the attacker, in s. */
      async function timeToEnd(withinMs: number): Promise<number | undefined> {
        const begunAt = performance.now();
        while (performance.now() - begunAt < withinMs) {
          await sleep(500);
          if ((await heldConnections()) === 0) return (performance.now() - begunAt) / 1_000;
        }
        return undefined;
      }

      function drip(text: string, everyMs: number): NodeJS.Timeout {
        return setInterval(() => {
          for (const socket of sockets) if (socket.writable) socket.write(text);
        }, everyMs);
      }

      it(`a flood of ${flood} slow heads of one client keeps nobody from a response for longer than ${balancer.servedWithin} s, and ends`, async () => {
        open(flood, 'GET /docs HTTP/1.1\r\nHost: backoffice.test\r\n');
        await sleep(1_000);
        const held = await heldConnections();
        const dripping = drip('X-a: b\r\n', 2_000);

        const [longest, ended] = await Promise.all([longestWait(20_000), timeToEnd(40_000)]);
        clearInterval(dripping);

        console.log(
          `      held ${held}, longest wait ${longest.toFixed(2)} s, ended after ${ended} s`,
        );
        expect(longest).to.be.below(balancer.servedWithin);
        expect(ended).to.be.below(20);
      });

      it(`slow bodies of one client ${balancer.bodyEndsWithin === undefined ? 'stay' : `end within ${balancer.bodyEndsWithin} s`}, and others are served meanwhile`, async () => {
        const headers = [
          `X-Tenant: ${world.acme.guid}`,
          'Content-Type: application/json',
          'Content-Length: 1000',
        ];
        open(400, rawRequest('POST /api/v1/auth/login', headers, '{'));
        for (const socket of sockets) socket.resume();
        const dripping = drip(' ', 1_000);

        const [longest, ended] = await Promise.all([longestWait(20_000), timeToEnd(60_000)]);
        clearInterval(dripping);

        console.log(`      longest wait ${longest.toFixed(2)} s, ended after ${ended} s`);
        expect(longest).to.be.below(5);
        if (balancer.bodyEndsWithin === undefined) expect(ended).to.equal(undefined);
        else expect(ended).to.be.below(balancer.bodyEndsWithin);
      });

      it('clients that read nothing end within 100 s, and others are served meanwhile', async () => {
        open(60, rawRequest(`GET ${bundle}`).repeat(5));

        const [longest, ended] = await Promise.all([longestWait(20_000), timeToEnd(110_000)]);

        console.log(`      longest wait ${longest.toFixed(2)} s, ended after ${ended} s`);
        expect(longest).to.be.below(5);
        expect(ended).to.be.below(100);
      });

      it('a stream of changes that is quiet for 75 s goes on, and so does an upload of a minute', async () => {
        const admin = (await world.login(world.acme)).at(service.url);
        const authorization = `Bearer ${admin.tokens?.accessToken}`;
        const stream = await fetch(`${url}/api/v1/Changes/stream`, {
          headers: { Authorization: authorization, Accept: 'text/event-stream' },
        });
        const received = stream.body?.pipeThrough(new TextDecoderStream()).getReader();

        const upload = request(`${url}/api/v1/Imports?resource=UnitOfMeasure`, {
          method: 'POST',
          agent: false,
          headers: { Authorization: authorization, 'Content-Type': 'text/csv' },
        });
        const answered = once(upload, 'response');
        upload.write(`Code,Name\nS${port},Slow\n`);
        for (let second = 0; second < 60; second++) {
          upload.write('\n'.repeat(24 * 1024));
          await sleep(1_000);
        }
        upload.end();
        const [response] = await answered;
        await sleep(15_000);
        const Name = `Through ${name}`;
        await admin.post('/api/v1/OrderStatuses', { Name });

        let text = '';
        await eventually(async () => {
          text += (await received?.read())?.value ?? '';
          return text.includes('OrderStatus');
        }, 20_000);
        await received?.cancel();
        expect(response.statusCode).to.equal(200);
        expect(JSON.parse(Buffer.concat(await response.toArray()).toString())).to.include({
          Applied: true,
        });
      });
    });
  }
});
