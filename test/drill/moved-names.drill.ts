import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { openInstallation } from '../../src/control/installation.ts';
import { requireMasterKey } from '../../src/control/present-key.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { startEmbeddedPostgres } from '../../src/lib/embedded/postgres.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { provision } from '../../src/operator/lifecycle/provision.ts';
import { Client } from '../support/client.ts';
import { nodeOptions, type RunningScript, startProgram } from '../support/command-line.ts';
import { manifestOf } from '../support/dedicated-server.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { Address, canName, NameServer } from '../support/name-server.ts';
import { createQuickPasswords } from '../support/quick-passwords.ts';
import { redisInstalled, startRedis, type TestRedis } from '../support/redis.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { copyDedicatedTemplate, dedicatedControl } from '../support/server-templates.ts';
import { Standby } from '../support/standby.ts';

/** Those of docs/operate/capacity.md, *When the name of a server leads to another address*. */
const vanishedMs = 20_000;
const mailMs = 7 * 60_000;
/** The time that a drill gives beyond them, because the machine can be busy. */
const slackMs = 10_000;
const units = '/api/v1/UnitsOfMeasure';
const databaseName = 'db.drill.test';
const cacheName = 'cache.drill.test';
const mailName = 'mail.drill.test';

/** A PostgreSQL server of the drill: the first one, or one that has followed another. */
interface Data {
  /** Superuser URL of the database `postgres`, at the address of the server itself. */
  readonly url: string;
  readonly folder: string;
  close(): Promise<void>;
}

describe('drill: names that lead to other addresses', function () {
  this.timeout(900_000);
  const cleanups: (() => Promise<unknown>)[] = [];
  /** The codes of the units of measure whose creation was acknowledged. */
  const acknowledged: string[] = [];
  let folder: string;
  let names: NameServer;
  let present: Data;
  let place: Address;
  let cachePlace: Address;
  let redis: TestRedis;
  let mail: MailServer;
  let mailPlace: Address;
  let service: RunningScript;
  let url: string;
  let guid: string;
  let admin: { email: string; password: string };
  let database: string;
  let client: Client;
  let lastCode = 0;
  let lastHost = 0;
  let lastStandby = 0;

  before(async function () {
    if (!canName || !redisInstalled) return this.skip();

    folder = await makeServerFolder('moved-names');
    cleanups.push(() => rm(folder, { recursive: true, force: true, maxRetries: 20 }));
    names = new NameServer('127.77.0.53', folder, 0);
    await names.start();
    cleanups.push(() => names.close());

    const environment = await makeInstallation();
    place = await newAddress(await freePort(), portOf(present.url));
    redis = await startRedis(['--dir', folder]); // in which a replica writes
    cleanups.push(redis.close);
    cachePlace = await newAddress(await freePort(), portOf(redis.url));
    mail = await startMailServer();
    cleanups.push(mail.close);
    mailPlace = await newAddress(await freePort(), portOf(mail.url));
    await names.set(databaseName, place.host);
    await names.set(cacheName, cachePlace.host);
    await names.set(mailName, mailPlace.host);

    const named = (text: string, host: string, port: number): string =>
      Object.assign(new URL(text), { hostname: host, port: String(port) }).href;
    await startService({
      ...environment,
      DATABASE_URL: named(environment.DATABASE_URL ?? '', databaseName, place.port),
      REDIS_URL: named(redis.url, cacheName, cachePlace.port),
      SMTP_URL: `${named(mail.url, mailName, mailPlace.port)}?ignoreTLS=true`,
    });
  });
  after(async () => {
    for (const close of cleanups.toReversed()) await close();
  });

  beforeEach(async () => {
    client = await login();
  });

  /** Makes a server with an installation and two tenants, and returns its settings. */
  async function makeInstallation(): Promise<Record<string, string>> {
    const first = join(folder, '0');
    await mkdir(first);
    await copyDedicatedTemplate(first);
    const postgres = await startEmbeddedPostgres(first, { settings: ['max_connections=120'] });
    present = { url: postgres.url, folder: first, close: postgres.leave };
    cleanups.push(postgres.leave);

    const environment = {
      DATABASE_URL: databaseUrl(postgres.url, dedicatedControl),
      MASTER_KEY: randomBytes(32).toString('base64'),
    };
    const installation = await openInstallation(readConfig(environment));
    await requireMasterKey(installation.statements, installation.secrets);
    const passwords = createQuickPasswords();
    await provision(installation, passwords, manifestOf('globex'));
    const { tenant, logins } = await provision(installation, passwords, manifestOf('acme'));
    await installation.close();

    guid = tenant.guid;
    database = tenant.databaseName;
    admin = logins[0] ?? { email: '', password: '' };
    return environment;
  }

  async function startService(environment: Record<string, string>): Promise<void> {
    const [program = '', ...args] = names.commandThatAsks([
      process.execPath,
      ...nodeOptions(),
      'src/main.ts',
    ]);
    const limits = ['GLOBAL', 'LOGIN', 'FAILURES', 'MAILS', 'PEOPLE', 'ACCOUNT', 'TOKEN'];
    service = startProgram(program, args, {
      ...environment,
      ...Object.fromEntries(limits.map(name => [`RATE_LIMIT_${name}`, '1000000/60s'])),
      PUBLIC_URL: 'http://backoffice.test',
      PORT: '0',
      MANAGEMENT_PORT: '0',
    });
    cleanups.push(() => {
      service.process.kill('SIGKILL');
      return service.ended;
    });

    const port = await eventually(() => {
      if (service.process.exitCode !== null) throw new Error(JSON.stringify(service.output));
      return /"event":"listening","port":(\d+)/.exec(service.output.stdout)?.[1];
    });
    url = `http://127.0.0.1:${port}`;
  }

  async function newAddress(port: number, upstreamPort: number): Promise<Address> {
    lastHost++;
    const address = new Address(`127.77.0.${lastHost}`, port, upstreamPort);
    await address.listen();
    cleanups.push(() => address.refuse());
    return address;
  }

  async function login(): Promise<Client> {
    const { status, body } = await new Client(url).post('/api/v1/auth/login', admin, {
      'X-Tenant': guid,
    });
    expect(status, JSON.stringify(body)).to.equal(200);
    return new Client(url, body);
  }

  /** Starts a standby of the present server. */
  async function follow(): Promise<Standby> {
    lastStandby++;
    const next = join(folder, `standby-${lastStandby}`);
    await mkdir(next);
    const standby = await Standby.start(present.url, present.folder, next);
    cleanups.push(() => standby.close());

    return standby;
  }

  /** Creates a unit of measure, and returns the status of its response. */
  async function write(): Promise<number> {
    lastCode++;
    const code = `X${lastCode}`;
    const { status } = await client.post(units, { Code: code, Name: code });
    if (status === 201) acknowledged.push(code);
    return status;
  }

  /** Creates units one after the other, until it is stopped. */
  function keepWriting(): { stop(): Promise<number[]> } {
    const statuses: number[] = [];
    let isStopped = false;
    const writing = (async () => {
      while (!isStopped) statuses.push(await write());
    })();

    return {
      stop: async () => {
        isStopped = true;
        await writing;
        return statuses;
      },
    };
  }

  /**
   * Waits until ten changes in a row are made, and a login, for which both databases are asked.
   * @returns the time, in ms
   */
  async function wellWithin(ms: number): Promise<number> {
    const beganAt = performance.now();

    await eventually(async () => {
      for (let made = 0; made < 10; made++) {
        if ((await write()) !== 201) return false;
      }
      await login();
      return true;
    }, ms);

    return performance.now() - beganAt;
  }

  async function expectAcknowledged(): Promise<void> {
    const { rows } = await withConnection(databaseUrl(present.url, database), server =>
      server.query<{ code: string }>('select code from units_of_measure'),
    );
    const stored = new Set(rows.map(({ code }) => code));

    expect(acknowledged.filter(code => !stored.has(code))).to.deep.equal([]);
  }

  /**
   * Promotes a standby, and gives the name its address.
   * @param leave what becomes of the former address before the standby is promoted: no change
   *   that its server makes from then on is acknowledged
   */
  async function failOver(leave: (former: Address) => Promise<void> | void): Promise<void> {
    const standby = await follow();
    const former = { place, data: present };
    const before = acknowledged.length;
    const writing = keepWriting();
    await eventually(() => acknowledged.length > before);

    await leave(former.place);
    await standby.promote();
    present = standby;
    place = await newAddress(former.place.port, portOf(standby.url));
    await names.set(databaseName, place.host);
    const ms = await wellWithin(vanishedMs + slackMs);
    const statuses = await writing.stop();

    console.log({ ms: Math.round(ms), statuses: countsOf(statuses) });
    await expectAcknowledged();
    await former.place.refuse();
    await former.data.close();
  }

  it('a server whose former address refuses is replaced within the time of the handbook, and no acknowledged change is lost', async () => {
    await failOver(former => former.refuse());
  });

  it('a server whose former address has fallen silent is replaced within the time of the handbook, and no acknowledged change is lost', async () => {
    await failOver(former => former.silence());
  });

  it('a server whose former address leads to a read-only standby is replaced within the time of the handbook, and no acknowledged change is lost', async () => {
    const follower = await follow();

    await failOver(async former => {
      former.leadTo(portOf(follower.url));
      const connections = `select from pg_stat_activity where datname = '${database}'`;
      await withConnection(follower.url, server =>
        eventually(async () => (await server.query(connections)).rowCount),
      );
    });

    await follower.close();
  });

  for (const [what, fall, rise] of [
    ['takes no questions', () => names.close(), () => names.start()],
    [
      'answers no questions',
      async () => names.signal('SIGSTOP'),
      async () => names.signal('SIGCONT'),
    ],
  ] as const) {
    it(`a name server that ${what} for ten seconds fails new connections alone, and these only for as long`, async () => {
      await fall();
      expect(await write(), 'on an open connection').to.equal(201);
      place.leadTo(portOf(present.url)); // ends its connections
      expect(await write(), 'on a new connection').to.equal(503);
      await sleep(10_000);
      await rise();

      const ms = await wellWithin(vanishedMs + slackMs);

      console.log({ ms: Math.round(ms) });
      await expectAcknowledged();
    });
  }

  for (const [what, dead] of [
    ['refuses', '127.77.0.254'],
    ['nobody has', '192.0.2.1'], // RFC 5737, for documentation
  ] as const) {
    it(`of two addresses of a name, the one that ${what} keeps nobody from the other`, async () => {
      await names.set(databaseName, dead, place.host);
      place.leadTo(portOf(present.url)); // ends its connections

      const ms = await wellWithin(slackMs);

      console.log({ ms: Math.round(ms) });
      await names.set(databaseName, place.host);
    });
  }

  for (const [what, leave] of [
    ['refuses', (former: Address) => former.refuse()],
    ['has fallen silent', async (former: Address) => former.silence()],
    [
      'leads to its replica',
      async (_: Address, from: TestRedis, to: TestRedis) => {
        await from.admin.replicaof('127.0.0.1', String(portOf(to.url)));
      },
    ],
  ] as const) {
    it(`a Redis whose former address ${what} is replaced within the time of the handbook, and requests are served meanwhile`, async () => {
      const former = { redis, place: cachePlace };
      redis = await startRedis(['--dir', folder]);
      cleanups.push(redis.close);
      await eventually(async () => (await former.redis.connections()) > 0);
      const writing = keepWriting();

      await leave(former.place, former.redis, redis);
      cachePlace = await newAddress(former.place.port, portOf(redis.url));
      await names.set(cacheName, cachePlace.host);
      const movedAt = performance.now();
      await eventually(async () => (await redis.connections()) > 0, vanishedMs + slackMs);
      const ms = performance.now() - movedAt;
      const statuses = await writing.stop();

      console.log({ ms: Math.round(ms), statuses: countsOf(statuses) });
      expect(countsOf(statuses)).to.have.all.keys('201');
      await former.place.refuse();
    });
  }

  it('a mail that fails at the former address of the mail server arrives at the new one within the time of the handbook', async () => {
    const next = await startMailServer();
    cleanups.push(next.close);
    const ask = async () => {
      const { status } = await new Client(url).post(
        '/api/v1/auth/reset-password',
        { email: admin.email },
        { 'X-Tenant': guid },
      );
      expect(status).to.equal(202);
    };
    await ask();
    await mail.waitForToken(admin.email);
    const former = mailPlace;

    await former.refuse();
    mailPlace = await newAddress(former.port, portOf(next.url));
    await names.set(mailName, mailPlace.host);
    const movedAt = performance.now();
    await ask();
    await eventually(() => next.messagesTo(admin.email).length, mailMs + slackMs);

    console.log({ ms: Math.round(performance.now() - movedAt) });
  });
});

function portOf(text: string): number {
  return Number(new URL(text).port);
}

/** Returns how often each status is there. */
function countsOf(statuses: readonly number[]): Record<string, number> {
  return Object.fromEntries(
    [...Map.groupBy(statuses, status => status)].map(([status, all]) => [status, all.length]),
  );
}
