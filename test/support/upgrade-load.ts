import { randomBytes, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { follow } from '../sales/events/follow.ts';
import { type Receiver, startReceiver } from '../sales/webhooks/receiver.ts';
import { backupSettings } from './backup-settings.ts';
import { Client } from './client.ts';
import { runScript, type ScriptResult } from './command-line.ts';
import { eventually } from './eventually.ts';
import type { CopiedBuild } from './next-build.ts';
import { type OwnServer, startOwnServer } from './own-server.ts';
import { redisInstalled, startRedis, type TestRedis } from './redis.ts';
import { makeServerFolder } from './server-folder.ts';
import { createServiceProcesses, type ServiceProcess } from './service-processes.ts';
import { type Served, sendSteadily, summaryOf } from './steady-load.ts';
import { postgresUrl, quickSettings } from './test-server.ts';

const [minRequestsPerSecond, maxRequestsPerSecond] = [25, 200];
/** A machine that is slower than this without an upgrade is loaded at half of the rate. */
const maxCalmMs = 500;
const phaseMs = 5_000;
/** Between two imports of a tenant. */
const importPauseMs = 500;
const path = '/api/v1/EntityStatus';

interface Credentials {
  readonly email: string;
  readonly password: string;
}

/** A tenant of an installation, with one session and what was acknowledged to it. */
interface Member {
  readonly guid: string;
  readonly slug: string;
  readonly databaseUrl: string;
  readonly admin: Credentials;
  /** Another user, who logs in again and again: a user keeps the newest 20 sessions. */
  readonly visitor: Credentials;
  accessToken: string;
  /** The session whose refresh token is rotated, from process to process. */
  refreshToken: string;
  isRefreshing: boolean;
  /** The ids of the created records, as the feed has them. */
  readonly created: string[];
  /** The place in the feed at which the load began. */
  cursor: string;
  /** The keys that the stream of changes has sent. */
  readonly streamed: string[];
  /** The names of the entities whose import was reported as applied. */
  readonly imported: string[];
}

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: drills assert what the service has sent
  readonly body: any;
}

/**
 * An installation of its own, made by the commands of a build, with two tenants, Redis, an
 * archive target, a receiver of webhooks and a second PostgreSQL server.
 */
export class UpgradedInstallation {
  readonly environment: Record<string, string>;
  readonly members: Member[] = [];
  /** The processes that clients are sent to. */
  inService: ServiceProcess[] = [];
  readonly receiver: Receiver;
  readonly #processes = createServiceProcesses();
  readonly #services: ServiceProcess[] = [];
  readonly #redis: TestRedis | undefined;
  readonly #second: OwnServer;
  #serviceUrl = '';

  private constructor(
    environment: Record<string, string>,
    receiver: Receiver,
    second: OwnServer,
    redis: TestRedis | undefined,
  ) {
    this.environment = environment;
    this.receiver = receiver;
    this.#second = second;
    this.#redis = redis;
  }

  static async make(build: CopiedBuild): Promise<UpgradedInstallation> {
    if (!redisInstalled) {
      console.log('      redis-server is not installed: this drill goes without');
    }
    const redis = redisInstalled ? await startRedis() : undefined;
    const second = await startOwnServer('second', [...quickSettings, 'max_connections=60']);
    const environment = {
      DATABASE_URL: databaseUrl(postgresUrl(), `upgrade_${randomBytes(5).toString('hex')}`),
      MASTER_KEY: randomBytes(32).toString('base64'),
      PORT: '0',
      MANAGEMENT_PORT: '0',
      SHUTDOWN_DELAY: '0s',
      RATE_LIMIT_GLOBAL: '1000000/60s',
      RATE_LIMIT_LOGIN: '1000000/15m',
      RATE_LIMIT_ACCOUNT: '1000000/15m',
      ...(await backupSettings(await makeServerFolder('backups'))),
      ...(redis ? { REDIS_URL: redis.url } : {}),
    };
    const made = new UpgradedInstallation(environment, await startReceiver(), second, redis);
    try {
      await made.#install(build);
    } catch (error) {
      await made.close();
      throw error;
    }

    return made;
  }

  async close(): Promise<void> {
    await this.#processes.killAll();
    await this.receiver.close();
    await this.#redis?.close();
    await this.#second.close();
  }

  /** Runs a command of a build, such as `control migrate` or `list`. */
  run(build: CopiedBuild, words: readonly string[], input = ''): Promise<ScriptResult> {
    const script = words[0] === 'control' ? 'control' : 'tenant';
    const args = script === 'control' ? words.slice(1) : words;
    return runScript(build.file(`scripts/${script}.ts`), [...args], this.environment, input);
  }

  /**
   * Runs a command of a build that must succeed.
   * @returns what it prints
   */
  async succeed(build: CopiedBuild, words: readonly string[], input = ''): Promise<string> {
    const { code, stdout, stderr } = await this.run(build, words, input);
    expect(code, `${words.join(' ')}: ${stdout}${stderr}`).to.equal(0);
    return stdout;
  }

  /** Migrates both databases by the commands of a build, in the order of the handbook. */
  async migrate(build: CopiedBuild): Promise<void> {
    await this.succeed(build, ['control', 'migrate']);
    // The timers of backups are the first to change to the new build.
    await this.succeed(build, ['backup', 'run', '--all']);
    await this.succeed(build, ['migrate', '--all', '--canary', '1']);
  }

  async start(build: CopiedBuild): Promise<ServiceProcess> {
    const environment = { ...this.environment, DATABASE_URL: this.#serviceUrl };
    const service = await this.#processes.start(environment, join(build.file('.'), 'src/main.ts'));
    this.#services.push(service);
    return service;
  }

  /** Returns what the processes have logged about a request. */
  logOf(traceId: string): string[] {
    return this.#services.flatMap(({ output }) =>
      output.stdout.split('\n').filter(line => line.includes(traceId)),
    );
  }

  /**
   * Takes a process out of service and stops it, as a deployment does.
   * @returns its exit code
   */
  async stop(service: ServiceProcess): Promise<number | null> {
    this.inService = this.inService.filter(each => each !== service);
    service.process.kill('SIGTERM');
    return (await service.ended).code;
  }

  /** Runs SQL in the control database. */
  async controlSql(text: string): Promise<object[]> {
    const { DATABASE_URL = '' } = this.environment;
    return withConnection(DATABASE_URL, async client => (await client.query(text)).rows);
  }

  async #install(build: CopiedBuild): Promise<void> {
    await this.succeed(build, ['control', 'migrate']);
    const login = await this.succeed(build, ['control', 'service-login', '--json']);
    this.#serviceUrl = JSON.parse(login).databaseUrl;

    for (const slug of ['acme', 'globex']) {
      const words = ['provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`];
      const { guid, admin, database } = JSON.parse(await this.succeed(build, [...words, '--json']));
      const email = `visitor@${slug}.test`;
      const added = await this.succeed(build, ['user', 'add', slug, email, '--json']);
      this.members.push({
        guid,
        slug,
        admin,
        visitor: { email, password: JSON.parse(added).password },
        databaseUrl: databaseUrl(postgresUrl(), database),
        accessToken: '',
        refreshToken: '',
        isRefreshing: false,
        created: [],
        cursor: '',
        streamed: [],
        imported: [],
      });
    }
    this.environment.WEBHOOK_TRUSTED_RECEIVERS = this.receiver.trustedBy(this.members);
    await this.succeed(build, ['server', 'add', 'second'], this.#second.url);
    await this.succeed(build, ['backup', 'init']);
    await this.succeed(build, ['backup', 'run', '--all']);
  }
}

/**
 * Clients of the tenants of an installation: requests at a fixed rate, a stream of changes, a
 * webhook and imports for each. Remembers what was acknowledged, and finds what is lost.
 */
export class UpgradeLoad {
  readonly #installation: UpgradedInstallation;
  readonly #served = new Map<string, Served[]>();
  readonly #stopping = new AbortController();
  readonly #further: Promise<void>[] = [];
  readonly #failures: string[] = [];
  readonly #refusedIds: string[] = [];
  #perSecond = maxRequestsPerSecond;
  #postponedImports = 0;

  constructor(installation: UpgradedInstallation) {
    this.#installation = installation;
  }

  /**
   * Logs in, begins streams, webhooks and imports, and finds the rate that the machine serves.
   */
  async begin(name: string): Promise<void> {
    const { members, receiver } = this.#installation;
    for (const member of members) {
      const session = await eventually(async () => {
        const { status, body } = await this.#logIn(member, member.admin);
        return status === 200 && body;
      });
      member.accessToken = session.accessToken;
      const { body } = await this.#logIn(member, member.admin);
      member.refreshToken = body.refreshToken;

      const webhook = { Url: receiver.url(`/${member.slug}`), Resources: ['EntityStatus'] };
      const { status } = await this.#send(member, 'POST', '/api/v1/Webhooks', webhook);
      expect(status).to.equal(201);
      const { headers } = await this.#send(member, 'GET', '/api/v1/Changes?after=now');
      member.cursor = headers.get('next-cursor') ?? '';
      this.#further.push(this.#follow(member), this.#import(member));
    }

    let calm = await this.#load(sleep(phaseMs));
    while (Number(summaryOf(calm).p99) > maxCalmMs && this.#perSecond > minRequestsPerSecond) {
      this.#perSecond /= 2;
      calm = await this.#load(sleep(phaseMs));
    }
    this.#served.set(`${name}, ${this.#perSecond} requests/s`, calm);
  }

  /** Sends requests while something is done, or for some seconds. */
  async during(name: string, work: () => Promise<unknown> = () => sleep(phaseMs)): Promise<void> {
    this.#served.set(name, await this.#load(work()));
  }

  /**
   * Ends the load, and checks that no request was refused but imports that were sent again, and
   * that each acknowledged change is there, once, in the database, the feed, the stream and the
   * webhook.
   */
  async end(): Promise<void> {
    const { members, receiver } = this.#installation;
    const isReceived = (member: Member): boolean =>
      member.streamed.length >= member.created.length &&
      receivedKeys(receiver, member).length >= member.created.length;
    await eventually(() => members.every(isReceived), 60_000).catch(() => {}); // judged below
    this.#stopping.abort();
    await Promise.all(this.#further);

    for (const [name, served] of this.#served) {
      console.log(`      ${name}: ${JSON.stringify(summaryOf(served))}`);
    }
    const imported = members.flatMap(member => member.imported).length;
    console.log(`      ${imported} imports, of which ${this.#postponedImports} were sent again`);
    const refused = [...this.#served.values()].flat().map(({ status }) => status);
    const [id] = this.#refusedIds;
    if (id) console.log(`      the first refusal: ${this.#installation.logOf(id).join('\n')}`);
    expect(refused.filter(status => typeof status === 'string')).to.deep.equal([]);
    expect(this.#failures).to.deep.equal([]);

    for (const member of members) {
      const created = [...member.created].sort();
      const rows = await readColumn(member, 'select id::text as value from entity_statuses');
      const feed = await this.#readFeed(member);
      const names = `select name as value from entities where name like 'Imported %' order by id`;

      expect(created).to.have.length.above(10);
      expect(rows).to.include.members(created);
      expect(feed, `${member.slug}: feed`).to.deep.equal(created);
      expect([...member.streamed].sort(), `${member.slug}: stream`).to.deep.equal(created);
      expect(receivedKeys(receiver, member), `${member.slug}: webhook`).to.deep.equal(created);
      expect(await readColumn(member, names), `${member.slug}: imports`).to.deep.equal(
        member.imported,
      );
    }
  }

  #load(until: Promise<unknown>): Promise<Served[]> {
    const { members } = this.#installation;
    return sendSteadily(this.#perSecond, until, async number => {
      const answer = await this.#sendOne(members[number % 2] as Member, Math.floor(number / 2));
      if (answer.status < 300) return answer.status;

      this.#refusedIds.push(answer.headers.get('x-request-id') ?? '');
      return `${answer.status} ${answer.body?.code}`;
    });
  }

  /**
   * Sends a request of the mix: 1 % logins, 1 % refreshes, 20 % creates, and reads of the
   * database and of the cache.
   */
  async #sendOne(member: Member, number: number): Promise<Answer> {
    if (number % 100 === 50) return this.#logIn(member, member.visitor);
    if (number % 100 === 25 && !member.isRefreshing) return this.#refresh(member);
    if (number % 5 === 1) {
      const title = `Status ${randomBytes(6).toString('hex')}`;
      const answer = await this.#send(member, 'POST', path, { Title: title });
      if (answer.status === 201) member.created.push(String(answer.body.Id));
      return answer;
    }

    const headers: Record<string, string> = number % 4 === 2 ? { 'Cache-Control': 'no-cache' } : {};
    return this.#send(member, 'GET', path, undefined, headers);
  }

  #logIn(member: Member, credentials: Credentials): Promise<Answer> {
    return this.#send(member, 'POST', '/api/v1/auth/login', credentials, {
      'X-Tenant': member.guid,
      Authorization: '',
    });
  }

  async #refresh(member: Member): Promise<Answer> {
    member.isRefreshing = true;
    const { refreshToken, guid } = member;
    const headers = { 'X-Tenant': guid, Authorization: '' };
    try {
      const answer = await this.#send(
        member,
        'POST',
        '/api/v1/auth/refresh',
        { refreshToken },
        headers,
      );
      member.refreshToken = answer.body?.refreshToken ?? refreshToken;
      return answer;
    } finally {
      member.isRefreshing = false;
    }
  }

  /** Follows the stream of changes, and goes on after its last id where a process ends it. */
  async #follow(member: Member): Promise<void> {
    const { signal } = this.#stopping;
    let last = member.cursor;

    while (!signal.aborted) {
      const client = new Client(this.#url(), { accessToken: member.accessToken, refreshToken: '' });
      const stream = await follow(client, `?after=${last}`).catch(() => undefined);
      if (!stream) {
        await sleep(50); // the process has ended since it was chosen
        continue;
      }
      if (stream.status !== 200) {
        this.#failures.push(`stream: ${stream.status} ${stream.problem?.code}`);
        return;
      }

      const close = (): void => stream.close();
      signal.addEventListener('abort', close, { once: true });
      for (;;) {
        const event = await stream.next().catch(() => undefined);
        last = stream.lastId ?? last;
        if (!event) break;
        if (event.data.Type === 'entity_status.created') member.streamed.push(event.data.Key);
      }
      signal.removeEventListener('abort', close);
    }
  }

  /** Imports one file after the other, and sends one that is 503 again with its key. */
  async #import(member: Member): Promise<void> {
    for (let number = 1; !this.#stopping.signal.aborted; number++) {
      const name = `Imported ${number}`;
      const key = randomUUID();
      let answer = await this.#sendImport(member, name, key);
      while (answer.status === 503 && answer.headers.has('retry-after')) {
        this.#postponedImports++;
        await sleep(200); // sooner than the client is asked to
        answer = await this.#sendImport(member, name, key);
      }

      if (answer.status === 200 && answer.body.Applied) member.imported.push(name);
      else this.#failures.push(`import: ${answer.status} ${JSON.stringify(answer.body)}`);
      await sleep(importPauseMs);
    }
  }

  #sendImport(member: Member, name: string, key: string): Promise<Answer> {
    return this.#send(
      member,
      'POST',
      '/api/v1/Imports?resource=Entity',
      `Name,EntityType\n${name},customer\n`,
      { 'Content-Type': 'text/csv', 'Idempotency-Key': key },
    );
  }

  /** Reads the feed from the place at which the load began. */
  async #readFeed(member: Member): Promise<string[]> {
    const keys: string[] = [];
    for (let cursor = member.cursor; ; ) {
      const query = `after=${encodeURIComponent(cursor)}&limit=1000`;
      const { status, headers, body } = await this.#send(member, 'GET', `/api/v1/Changes?${query}`);
      expect(status).to.equal(200);
      const created = body.filter(({ Type }: { Type: string }) => Type === 'entity_status.created');
      keys.push(...created.map(({ Key }: { Key: string }) => Key));
      if (body.length === 0) return keys.sort();
      cursor = headers.get('next-cursor') ?? '';
    }
  }

  /** Returns the address of a process in service, of each as often. */
  #url(): string {
    const { inService } = this.#installation;
    return inService[Math.floor(Math.random() * inService.length)]?.url ?? '';
  }

  async #send(
    member: Member,
    method: string,
    target: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer> {
    const response = await fetch(this.#url() + target, {
      method,
      headers: {
        Authorization: `Bearer ${member.accessToken}`,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined
        ? {}
        : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    const isJson = /json/.test(response.headers.get('content-type') ?? '');
    return {
      status: response.status,
      headers: response.headers,
      body: isJson ? JSON.parse(text) : text,
    };
  }
}

/** Returns the keys of the records that a webhook has received, each once. */
function receivedKeys(receiver: Receiver, { slug }: Member): string[] {
  const keys = receiver.at(`/${slug}`).map(({ body }) => String(body.data.Key));
  return [...new Set(keys)].sort();
}

async function readColumn(member: Member, text: string): Promise<string[]> {
  return withConnection(member.databaseUrl, async client =>
    (await client.query<{ value: string }>(text)).rows.map(({ value }) => value),
  );
}
