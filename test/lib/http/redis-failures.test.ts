import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import {
  connect,
  createServer,
  getDefaultAutoSelectFamilyAttemptTimeout,
  type Socket,
} from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { Redis } from 'ioredis';
import { pino } from 'pino';
import { Breaker } from '../../../src/lib/http/steps/rate-limit/breaker.ts';
import {
  createRateLimitStore,
  type RateLimitStore,
} from '../../../src/lib/http/steps/rate-limit/rate-limit-store.ts';
import { OperatorError } from '../../../src/lib/log/operator-error.ts';
import { makeCertificate } from '../../support/certificate.ts';
import { errorOf } from '../../support/errors.ts';
import { eventually } from '../../support/eventually.ts';
import { freePort } from '../../support/free-port.ts';
import { redisInstalled, startRedis, type TestRedis } from '../../support/redis.ts';
import { type HeldTimers, holdTimers } from './held-timers.ts';

const rate = { max: 100_000, windowMs: 3_600_000 };
const maxStartMs = 4 * getDefaultAutoSelectFamilyAttemptTimeout() + 200;
const maxReplyMs = 80;

interface Line {
  level: number;
  event: string;
  reason?: string;
  detail?: string;
  msg: string;
}

if (redisInstalled) describe('Redis as people have it', redisAsPeopleHaveIt);
else console.log('redis-server is not installed: the tests of its failures are skipped');

function redisAsPeopleHaveIt(this: Mocha.Suite): void {
  this.slow(10_000);

  const ends: (() => unknown)[] = [];
  const printed: unknown[][] = [];
  const real = { warn: console.warn, error: console.error, log: console.log };
  let lines: Line[];
  /** The time limits of a start and of a call, so that each ends by what Redis says. */
  let timeLimits: HeldTimers[];

  beforeEach(() => {
    timeLimits = [holdTimers(maxStartMs), holdTimers(maxReplyMs)];
    lines = [];
    printed.length = 0;
    const print = (...text: unknown[]) => void printed.push(text);
    Object.assign(console, { warn: print, error: print, log: print });
  });

  afterEach(async () => {
    Object.assign(console, real);
    const page = await readFile(
      new URL('../../../docs/operate/errors.md', import.meta.url),
      'utf8',
    );
    for (const { reason } of lines) {
      if (reason) {
        expect(page, 'each reason has its next step in the handbook').to.include(`\`${reason}\``);
      }
    }
    for (const end of ends.splice(0).reverse()) await end();
    for (const held of timeLimits.reverse()) held.restore();
  });

  async function start(options: readonly string[] = []): Promise<TestRedis> {
    const redis = await startRedis(options);
    ends.push(() => redis.close());
    return redis;
  }

  async function open(redisUrl: string, installationId = 'one'): Promise<RateLimitStore> {
    const log = pino(
      { base: null },
      { write: (line: string) => void lines.push(JSON.parse(line)) },
    );
    const store = await createRateLimitStore({ redisUrl, installationId, log });
    ends.push(() => store.close());
    return store;
  }

  const events = () => lines.map(({ event }) => event);
  const reasons = () => lines.map(({ reason }) => reason);

  describe('a Redis that refuses is told by its own reason, and nothing is printed beside the log', () => {
    const withPassword = (url: string, password: string) => url.replace('//', `//:${password}@`);

    it('a wrong password is WRONGPASS', async () => {
      const { url, admin } = await start();
      await admin.config('SET', 'requirepass', 'right');

      await open(withPassword(url, 'wrong'));

      expect(reasons()).to.deep.equal(['WRONGPASS']);
      expect(JSON.stringify(lines)).not.to.contain('wrong"');
      expect(printed).to.deep.equal([]);
    });

    it('a missing password is NOAUTH', async () => {
      const { url, admin } = await start();
      await admin.config('SET', 'requirepass', 'right');

      await open(url);

      expect(reasons()).to.deep.equal(['NOAUTH']);
    });

    it('a password that Redis does not ask for is no failure', async () => {
      const { url } = await start();

      await open(withPassword(url, 'needless'));

      expect(lines).to.deep.equal([]);
      expect(printed).to.deep.equal([]);
    });

    it('a login without rights is NOPERM', async () => {
      const { url, admin } = await start();
      await admin.call('ACL', 'SETUSER', 'limits', 'on', '>secret', '~*:rl:*', '+get');

      await open(url.replace('//', '//limits:secret@'));

      expect(reasons()).to.deep.equal(['NOPERM']);
      expect(printed).to.deep.equal([]);
    });

    it('a closed port is ECONNREFUSED', async () => {
      await open(`redis://127.0.0.1:${await freePort()}`);

      expect(reasons()).to.deep.equal(['ECONNREFUSED']);
    });

    it('a host without an address is ENOTFOUND', async () => {
      await open('redis://redis.invalid:6379');

      expect(reasons()[0]).to.be.oneOf(['ENOTFOUND', 'EAI_AGAIN']);
    });

    it('a Redis that takes no further client fails with the reason MAXCLIENTS', async () => {
      const { url, admin } = await start();
      await admin.config('SET', 'maxclients', 1);

      await open(url);

      expect(reasons()).to.deep.equal(['MAXCLIENTS']);
      expect(printed).to.deep.equal([]);
    });

    const address = Object.values(networkInterfaces())
      .flat()
      .find(found => found?.family === 'IPv4' && !found.internal)?.address;

    it('the protected mode is DENIED', async function () {
      if (address === undefined) return this.skip();
      const { url } = await start(['--bind', '0.0.0.0']);

      await open(url.replace('127.0.0.1', address));

      expect(reasons()).to.deep.equal(['DENIED']);
      expect(printed).to.deep.equal([]);
    });

    it('each fault of TLS is the code of its own', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'redis-tls-'));
      ends.push(() => rm(folder, { recursive: true }));
      const [certificate, key] = [join(folder, 'redis.crt'), join(folder, 'redis.key')];
      await makeCertificate('localhost', [certificate, key]);
      const port = await freePort();
      const tls = [
        '--tls-port',
        port,
        '--tls-cert-file',
        certificate,
        '--tls-key-file',
        key,
        '--tls-ca-cert-file',
        certificate,
      ];
      const { url } = await start([...tls.map(String), '--tls-auth-clients', 'no']);

      await open(`rediss://localhost:${port}`);
      await open(`redis://localhost:${port}`);
      await open(url.replace('redis:', 'rediss:'));

      expect(reasons()[0]).to.equal('DEPTH_ZERO_SELF_SIGNED_CERT');
      expect(reasons()[1]).to.be.oneOf(['ECONNRESET', 'CLOSED']);
      expect(reasons()[2]).to.be.oneOf([
        'ETIMEDOUT',
        'ERR_SSL_WRONG_VERSION_NUMBER',
        'ECONNRESET',
        'CLOSED',
      ]);
      expect(printed).to.deep.equal([]);
    });
  });

  it('the rights that .env.example names are enough, also with a number of a database', async () => {
    const { url, admin } = await start();
    const settings = await readFile(new URL('../../../.env.example', import.meta.url), 'utf8');
    const [, rights = ''] = /Its login needs `([^`]+)`, and `\+select`/.exec(settings) ?? [];
    const given = [...rights.split(' '), '+select'];
    await admin.call('ACL', 'SETUSER', 'limits', 'on', '>secret', ...given);

    const store = await open(`${url.replace('//', '//limits:secret@')}/3`);
    await store.hit('rl:test', rate);

    expect(rights).to.include('+evalsha');
    expect(await admin.call('ACL', 'LOG'), 'Redis has logged no refusal').to.deep.equal([]);
    expect(lines).to.deep.equal([]);
    expect(printed).to.deep.equal([]);
    await admin.select(3);
    expect(await admin.exists('one:rl:test')).to.equal(1);
  });

  it('a database that Redis refuses ends the start, with the reason of Redis', async () => {
    const { url, admin } = await start();
    await admin.call('ACL', 'SETUSER', 'limits', 'on', '>secret', '~*', '+@all', '-select');

    const missing = await errorOf(open(`${url}/99`));
    const forbidden = await errorOf(open(`${url.replace('//', '//limits:secret@')}/3`));

    expect(missing).to.be.instanceOf(OperatorError);
    expect(missing.message)
      .to.contain('database 99')
      .and.to.contain('ERR DB index is out of range');
    expect(forbidden.message).to.contain('database 3').and.to.contain('NOPERM');
  });

  it('two installations on one Redis do not count together', async () => {
    const { url } = await start();
    const [one, two] = [await open(url, 'one'), await open(url, 'two')];
    const small = { max: 2, windowMs: 60_000 };

    for (let call = 0; call < 2; call++) await one.hit('rl:test', small);

    expect((await one.hit('rl:test', small)).remaining).to.equal(0);
    expect((await two.hit('rl:test', small)).remaining).to.equal(2);
  });

  describe('an address that leads to another Redis', () => {
    /**
     * A name of a server that can be pointed elsewhere, while open connections stay where they
     * are.
     */
    async function startName(port: number) {
      const sockets = new Set<Socket>();
      const name = { target: port, url: '' };
      const server = createServer(client => {
        const upstream = connect(name.target, '127.0.0.1');
        for (const socket of [client, upstream]) {
          socket.on('error', () => {});
          sockets.add(socket);
        }
        client.pipe(upstream).pipe(client);
      });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      name.url = `redis://127.0.0.1:${(server.address() as { port: number }).port}`;
      ends.push(() => {
        server.close();
        for (const socket of sockets) socket.destroy();
      });
      return name;
    }

    const portOf = ({ url }: TestRedis) => Number(new URL(url).port);

    const demotions: [
      title: string,
      demote: (redis: TestRedis) => Promise<unknown>,
      reason: string,
    ][] = [
      ['becomes a replica', ({ admin }) => admin.replicaof('127.0.0.1', 1), 'READONLY'],
      ['is full', ({ admin }) => admin.config('SET', 'maxmemory', 1), 'OOM'],
    ];

    for (const [title, demote, reason] of demotions) {
      it(`a primary that ${title} and keeps its connections is left for the new one within seconds`, async () => {
        const [first, second] = [await start(), await start()];
        const name = await startName(portOf(first));
        const store = await open(name.url);
        await store.hit('rl:test', rate);

        await demote(first);
        name.target = portOf(second);
        for (let call = 0; call < 3; call++) await store.hit('rl:test', rate);

        expect(reasons()[0]).to.equal(reason);
        await eventually(() => events().includes('rate_limits_shared'), 30_000);
        await store.hit('rl:after', rate);
        expect(await second.admin.exists('one:rl:after')).to.equal(1);
        expect(printed).to.deep.equal([]);
      });
    }
  });

  describe('a cluster', () => {
    it('a cluster is told once as a wrong setting, whichever node is named, and is never said to work', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'redis-cluster-'));
      ends.push(() => rm(folder, { recursive: true }));
      const bus = [await freePort(), await freePort()];
      const cluster = ['--dir', folder, '--cluster-enabled', 'yes'];
      const startNode = (node: number) => {
        const own = [
          '--cluster-config-file',
          `node-${node}.conf`,
          '--cluster-port',
          String(bus[node]),
        ];
        return start([...cluster, ...own]);
      };
      const [one, two] = [await startNode(0), await startNode(1)];

      await open(one.url);
      expect(reasons()).to.deep.equal(['CLUSTERDOWN']);

      await one.admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 8_191);
      await two.admin.call('CLUSTER', 'ADDSLOTSRANGE', 8_192, 16_383);
      await one.admin.call('CLUSTER', 'MEET', '127.0.0.1', new URL(two.url).port, bus[1] ?? 0);
      await eventually(async () =>
        String(await two.admin.call('CLUSTER', 'INFO')).includes('cluster_state:ok'),
      );
      await eventually(async () =>
        String(await one.admin.call('CLUSTER', 'INFO')).includes('cluster_state:ok'),
      );
      await eventually(() => reasons().includes('MOVED'));

      lines.length = 0;
      const stores = [await open(one.url), await open(two.url)];
      for (let call = 0; call < 100; call++) {
        for (const store of stores) await store.hit(`rl:test:${call}`, rate);
      }

      expect(reasons()).to.deep.equal(['MOVED', 'MOVED']);
      expect(lines[0]?.level).to.equal(50);
      expect(lines[0]?.msg).to.contain('Set REDIS_URL to a Redis that is no cluster');
      expect(stores.map(({ isFallback }) => isFallback)).to.deep.equal([true, true]);
      expect(printed).to.deep.equal([]);
    });
  });

  it('ioredis prints a line of its own by default, so that the tests above would see one', async () => {
    const { url, admin } = await start();
    await admin.call('ACL', 'SETUSER', 'limits', 'on', '>secret', '~*', '+get');
    const client = new Redis(url.replace('//', '//limits:secret@'));
    client.on('error', () => {});
    ends.push(() => client.disconnect());

    await eventually(() => printed.some(([text]) => String(text).includes('INFO command fails')));
  });
}

describe('a service that wavers', () => {
  it('a service that wavers works again only after several good probes in succession, and after more if it fails again soon', async () => {
    const timers = holdTimers(500);
    const told: string[] = [];
    let isGood = false;

    const breaker = new Breaker({
      probe: async () => {
        if (!isGood) throw new Error('late');
      },
      onFailure: () => told.push('failure'),
      onClose: () => told.push('works'),
      onStuck: () => told.push('stuck'),
    });

    const probe = async (good: boolean) => {
      isGood = good;
      timers.release();
      await eventually(() => timers.size === 1 || !breaker.isOpen);
    };

    const probesUntilClosed = async () => {
      for (let probes = 1; ; probes++) {
        await probe(true);
        if (!breaker.isOpen) return probes;
      }
    };

    try {
      await breaker.check();
      for (let pair = 0; pair < 5; pair++) {
        await probe(true);
        await probe(true);
        await probe(false);
      }

      expect(breaker.isOpen).to.equal(true);
      expect(await probesUntilClosed()).to.equal(3);

      isGood = false;
      await breaker.check();
      expect(await probesUntilClosed()).to.equal(6);

      isGood = false;
      await breaker.check();
      for (let probes = 0; probes < 10; probes++) await probe(false);
      expect(told.at(-1)).to.equal('stuck');
    } finally {
      breaker.stop();
      timers.restore();
    }
  });
});
