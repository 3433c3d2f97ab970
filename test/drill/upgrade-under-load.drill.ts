import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { runScript, type ScriptResult } from '../support/command-line.ts';
import { checkOutNewest } from '../support/earlier-builds.ts';
import { eventually } from '../support/eventually.ts';
import { makeNextBuild } from '../support/next-build.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { type Served, sendSteadily, summaryOf } from '../support/steady-load.ts';
import { postgresUrl } from '../support/test-server.ts';

const [minRequestsPerSecond, maxRequestsPerSecond] = [25, 200];
/** A machine that is slower than this without an upgrade is loaded at half of the rate. */
const maxCalmMs = 500;
const phaseMs = 5_000;
const path = '/api/v1/EntityStatus';

/** The files of a build. */
interface Build {
  readonly folder: string;
  remove(): Promise<void>;
}

interface Login {
  readonly guid: string;
  readonly email: string;
  readonly password: string;
  accessToken: string;
}

const thisBuild: Build = {
  folder: fileURLToPath(new URL('../..', import.meta.url)),
  remove: async () => {},
};

/** An installation of its own, made by the commands of a build, with two tenants. */
class Installation {
  readonly environment: Record<string, string>;
  readonly logins: Login[] = [];
  readonly processes: ServiceProcess[] = [];
  readonly #started = createServiceProcesses();
  #serviceUrl = '';

  constructor() {
    this.environment = {
      DATABASE_URL: databaseUrl(postgresUrl(), `upgrade_${randomBytes(5).toString('hex')}`),
      MASTER_KEY: randomBytes(32).toString('base64'),
      PORT: '0',
      MANAGEMENT_PORT: '0',
      SHUTDOWN_DELAY: '0s',
      RATE_LIMIT_GLOBAL: '1000000/60s',
      RATE_LIMIT_LOGIN: '1000000/15m',
      RATE_LIMIT_ACCOUNT: '1000000/15m',
    };
  }

  run({ folder }: Build, script: 'control' | 'tenant', ...args: string[]): Promise<ScriptResult> {
    return runScript(join(folder, `scripts/${script}.ts`), args, this.environment);
  }

  async succeed(build: Build, script: 'control' | 'tenant', ...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await this.run(build, script, ...args);
    expect(code, `${args.join(' ')}: ${stdout}${stderr}`).to.equal(0);
    return stdout;
  }

  async make(build: Build): Promise<void> {
    await this.succeed(build, 'control', 'migrate');
    this.#serviceUrl = JSON.parse(
      await this.succeed(build, 'control', 'service-login', '--json'),
    ).databaseUrl;
    for (const slug of ['acme', 'globex']) {
      const args = ['--name', slug, '--admin-email', `admin@${slug}.test`, '--json'];
      const { guid, admin } = JSON.parse(
        await this.succeed(build, 'tenant', 'provision', slug, ...args),
      );
      this.logins.push({ guid, ...admin, accessToken: '' });
    }
  }

  async start({ folder }: Build): Promise<ServiceProcess> {
    const environment = { ...this.environment, DATABASE_URL: this.#serviceUrl };
    const service = await this.#started.start(environment, join(folder, 'src/main.ts'));
    this.processes.push(service);
    return service;
  }

  close(): Promise<void> {
    return this.#started.killAll();
  }
}

/**
 * Stops a process as a deployment does.
 * @returns its exit code
 */
async function stop({ process: child, ended }: ServiceProcess): Promise<number | null> {
  child.kill('SIGTERM');
  return (await ended).code;
}

async function logIn(url: string, login: Login): Promise<number | string> {
  const response = await fetch(`${url}/api/v1/auth/login`, {
    method: 'POST',
    headers: { 'X-Tenant': login.guid, 'Content-Type': 'application/json' },
    body: JSON.stringify({ email: login.email, password: login.password }),
  });
  const body = (await response.json()) as { accessToken?: string; code?: string };
  login.accessToken = body.accessToken ?? login.accessToken;
  return response.ok ? response.status : `${response.status} ${body.code}`;
}

/**
 * Sends a request of the mix: 2 % logins, 20 % creates, 28 % reads of the database and 50 %
 * reads of the cache.
 */
async function sendOne(url: string, login: Login, number: number): Promise<number | string> {
  if (number % 50 === 0) return logIn(url, login);
  const headers = { Authorization: `Bearer ${login.accessToken}` };
  const isWrite = number % 5 === 1;
  const response = isWrite
    ? await fetch(url + path, {
        method: 'POST',
        headers: { ...headers, 'Content-Type': 'application/json' },
        body: JSON.stringify({ Title: `Status ${randomBytes(6).toString('hex')}` }),
      })
    : await fetch(url + path, {
        headers: number % 4 === 2 ? { ...headers, 'Cache-Control': 'no-cache' } : headers,
      });
  const body = (await response.json()) as { code?: string };
  return response.ok ? response.status : `${response.status} ${body.code}`;
}

describe('drill: upgrade under load', function () {
  this.timeout(300_000);
  const cleanUps: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  });

  async function install(build: Build): Promise<Installation> {
    const installation = new Installation();
    cleanUps.push(() => installation.close());
    await installation.make(build);
    return installation;
  }

  /**
   * Upgrades in the order of the handbook, while two tenants send requests to the processes
   * that are in service.
   */
  async function upgrade(old: Build, next: Build): Promise<void> {
    const installation = await install(old);
    const { logins } = installation;
    const first = await installation.start(old);
    for (const login of logins) expect(await logIn(first.url, login)).to.equal(200);
    let inService = [first];
    let perSecond = maxRequestsPerSecond;
    const load = (until: Promise<unknown>): Promise<Served[]> =>
      sendSteadily(perSecond, until, number => {
        const { url } = inService[Math.floor(number / 2) % inService.length] as ServiceProcess;
        return sendOne(url, logins[number % 2] as Login, Math.floor(number / 2));
      });
    let calm = await load(sleep(phaseMs));
    while (Number(summaryOf(calm).p99) > maxCalmMs && perSecond > minRequestsPerSecond) {
      perSecond /= 2;
      calm = await load(sleep(phaseMs));
    }

    const phases = {
      [`old build, ${perSecond} requests/s`]: calm,
      migrations: await load(
        (async () => {
          await installation.succeed(next, 'control', 'migrate');
          await installation.start(next);
          await installation.succeed(next, 'tenant', 'migrate', '--all', '--canary', '1');
        })(),
      ),
      'both builds': await load(
        (async () => {
          inService = [...installation.processes];
          await sleep(phaseMs);
          inService = installation.processes.slice(1);
          expect(await stop(first)).to.equal(0);
        })(),
      ),
      'new build': await load(sleep(phaseMs)),
    };
    for (const [name, served] of Object.entries(phases)) {
      console.log(`      ${name}: ${JSON.stringify(summaryOf(served))}`);
    }
    const failed = Object.values(phases)
      .flat()
      .filter(({ status }) => typeof status === 'string');
    expect(failed).to.deep.equal([]);
  }

  it('an upgrade with compatible migrations of both databases fails no request', async () => {
    const next = await makeNextBuild(compatibleMigration);
    await writeFile(next.file('migrations/control/9999-notes.ts'), compatibleControlMigration);
    cleanUps.push(next.remove);
    await upgrade(thisBuild, { folder: next.file('.'), remove: next.remove });
  });

  it('an upgrade to this build from the build before its last compatible migration fails no request', async function () {
    const old = await checkOutNewest();
    // a checkout without its history has no earlier build
    if (old === undefined) return this.skip();
    cleanUps.push(old.remove);
    await upgrade(old, thisBuild);
  });

  it('an upgrade with a migration that is not compatible is refused until the old process has stopped', async () => {
    const next = await makeNextBuild();
    cleanUps.push(next.remove);
    const build = { folder: next.file('.'), remove: next.remove };
    const installation = await install(thisBuild);
    const [login] = installation.logins as [Login];
    const old = await installation.start(thisBuild);
    await eventually(async () => (await logIn(old.url, login)) === 200);

    const refused = await installation.run(build, 'tenant', 'migrate', '--all', '--json');
    expect(refused.code, refused.stderr).to.equal(1);
    expect(JSON.parse(refused.stderr).error.blockedBy[0].pid).to.equal(old.process.pid);
    expect(await sendOne(old.url, login, 1)).to.equal(201);
    expect(await stop(old)).to.equal(0);

    const stoppedAt = performance.now();
    await installation.succeed(build, 'tenant', 'migrate', '--all');
    const recent = await installation.start(build);
    expect(await sendOne(recent.url, login, 1)).to.equal(201);
    console.log(`      out of service for ${Math.round(performance.now() - stoppedAt)} ms`);
  });
});

/** Changes a table that requests use, and takes long enough to meet many of them. */
const compatibleMigration = `
import { Migration } from '@mikro-orm/migrations';
import { grant } from './sql.ts';

export class Colours extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('create table colours (id integer primary key, name text not null)');
    this.addSql(grant('select', 'colours'));
    this.addSql('select pg_sleep(1)');
    this.addSql("alter table entity_statuses add column colour text not null default 'grey'");
    this.addSql('create index entity_statuses_colour_index on entity_statuses (colour)');
    this.addSql('select pg_sleep(0.2)');
  }

  override down(): void {
    this.addSql('alter table entity_statuses drop column colour');
    this.addSql('drop table colours');
  }
}
`;

/** Changes a table of the control database that requests use. */
const compatibleControlMigration = `
import { Migration } from '@mikro-orm/migrations';

export class Notes extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql("alter table tenants add column note text not null default ''");
    this.addSql('create index users_first_name_index on users (first_name)');
    this.addSql('select pg_sleep(0.2)');
  }
}
`;
