import { writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { codeOf } from '../accounts/auth/factors/factor-world.ts';
import { Client } from '../support/client.ts';
import { compatibleReleases, makeEarlierBuild } from '../support/earlier-builds.ts';
import { type CopiedBuild, copyBuild, makeNextBuild } from '../support/next-build.ts';
import { UpgradedInstallation, UpgradeLoad } from '../support/upgrade-load.ts';

/**
 * The former build is the newest release that the migrations are compatible with, from the
 * history; before the first release, the last commit. Today's build is this one, with a further
 * migration of each database, so that there is something to upgrade to.
 */
describe('drill: an upgrade, a return, and both builds at once, under load', function () {
  this.timeout(600_000);
  const cleanUps: (() => Promise<void>)[] = [];
  let former: CopiedBuild;
  let today: CopiedBuild;
  let head = '';

  before(async () => {
    const release = (await compatibleReleases()).at(-1);
    // With a migration since the last release that is not compatible, nothing of this is promised.
    if (!release) return this.ctx.skip();
    console.log(`      the former build is ${release.name}`);
    former = await makeEarlierBuild(release);

    const next = await makeNextBuild(compatibleMigration);
    await writeFile(next.file('migrations/control/9999-notes.ts'), compatibleControlMigration);
    today = next;
    head = next.head;
  });
  after(async () => {
    await today?.remove();
    await former?.remove();
  });
  afterEach(async () => {
    for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  });

  /** Makes an installation by the former build. */
  async function install(): Promise<UpgradedInstallation> {
    const installation = await UpgradedInstallation.make(former);
    cleanUps.push(() => installation.close());
    return installation;
  }

  /** Starts two processes of a build, which clients are sent to as well from then on. */
  async function startTwo(installation: UpgradedInstallation, build: CopiedBuild) {
    const started = [await installation.start(build), await installation.start(build)];
    installation.inService.push(...started);
    return started;
  }

  /** Replaces processes one after the other. */
  async function replace(
    installation: UpgradedInstallation,
    old: Awaited<ReturnType<typeof startTwo>>,
    build: CopiedBuild,
  ): Promise<void> {
    for (const service of old) {
      installation.inService.push(await installation.start(build));
      expect(await installation.stop(service)).to.equal(0);
    }
  }

  it('an upgrade from the former build refuses no request but imports that are sent again, and loses no change, session, cursor, event or message', async () => {
    const installation = await install();
    const old = await startTwo(installation, former);
    const load = new UpgradeLoad(installation);

    await load.begin('former build');
    await load.during('migrations', () => installation.migrate(today));
    await load.during('replacement', () => replace(installation, old, today));
    await load.during('new build');
    await load.during('backups', () => installation.succeed(today, ['backup', 'run', '--all']));

    await load.end();
  });

  it('the former build serves the databases of the later one again, after a return under load and without a migration', async () => {
    const installation = await install();
    await installation.migrate(today);
    const recent = await startTwo(installation, today);
    const load = new UpgradeLoad(installation);

    await load.begin('new build');
    await load.during('return', () => replace(installation, recent, former));
    await load.during('former build on later databases');
    await load.during('backups by the later build', () =>
      installation.succeed(today, ['backup', 'run', '--all']),
    );

    await load.end();
    expect(await installation.succeed(former, ['list'])).to.include(head);
  });

  it('after a return, the former build does what neither archives, removes rows, copies nor migrates, and refuses the rest in one sentence before it writes', async () => {
    const installation = await install();
    await installation.migrate(today);
    await installation.start(former);
    const recorded = (): Promise<object[]> => installation.controlSql(recordedState);

    for (const words of [
      'list',
      'show acme',
      'status',
      'processes',
      'logs',
      'edit acme --name Acme',
      'suspend globex --yes',
      'resume globex',
      'user list acme',
      'user add acme bob@acme.test --scope All',
      'user disable acme bob@acme.test --yes',
      'retention acme --activity 2y',
      'session list acme',
      'session revoke acme --user admin@acme.test --yes',
      'key list acme',
      'key rotate acme',
    ]) {
      await installation.succeed(former, words.split(' '));
    }

    for (const words of [
      'backup run --all',
      'backup run acme',
      'backup drill --count 2',
      'retention apply acme',
      'retention apply --all --dry-run',
      'move acme --to second',
      'clone acme copy',
      'clone acme copy --archive latest',
      'restore acme --archive latest',
      'packs apply acme --packs currencies',
      'migrate --all',
      'migrate --all --dry-run',
      'rollback acme --yes --despite-running',
    ]) {
      const before = await recorded();
      const { code, stdout, stderr } = await installation.run(former, words.split(' '));

      expect(code, `${words}: ${stdout}${stderr}`).to.equal(1);
      expect(stdout + stderr, words).to.include(
        `is at version ${head}, of a later build: use that build`,
      );
      expect(await recorded(), words).to.deep.equal(before);
    }
  });

  it('after a return, the former build lets in nobody with a second factor by the password alone, and takes neither a challenge, a setup token nor a key at any route', async () => {
    const installation = await install();
    await installation.migrate(today);
    const recent = await installation.start(today);
    const [acme] = installation.members;
    if (!acme) throw new Error('the installation has no tenant');
    const header = { 'X-Tenant': acme.guid };
    const login = ({ url }: { url: string }, person: object) =>
      new Client(url).post('/api/v1/auth/login', person, header);

    const tokens = (await login(recent, acme.admin)).body;
    const admin = new Client(recent.url).withToken(tokens.accessToken);
    const program = { Name: 'Till', Role: 'Administrator', Scope: 'All', Networks: [] };
    const { body: made } = await admin.post('/api/v1/Programs', program);
    const { body: key } = await admin.post(`/api/v1/Programs/${made.Id}/keys`, {});
    const { body: factor } = await admin.post('/api/v1/auth/factors/totp', {});
    const code = codeOf(factor.secret, Math.floor(Date.now() / 30_000));
    await admin.post(`/api/v1/auth/factors/${factor.id}/confirm`, { code });
    const { body: begun } = await login(recent, acme.admin);
    expect((await login(recent, acme.visitor)).status).to.equal(200);
    await installation.controlSql(
      `update roles set requires_second_factor = true
        where id = (select role_id from users where email = '${acme.visitor.email}')`,
    );
    const { body: refused } = await login(recent, acme.visitor);
    const secrets = [key.Key, begun.challenge, refused.setupToken];
    expect(secrets.map(each => typeof each)).to.deep.equal(['string', 'string', 'string']);
    await installation.stop(recent);

    const service = await installation.start(former);
    for (const person of [acme.admin, acme.visitor]) {
      expect((await login(service, person)).status, person.email).to.be.at.least(401);
    }
    const anonymous = new Client(service.url);
    const { paths } = (await anonymous.get('/docs/openapi.json')).body;
    const routes = Object.entries<Record<string, { security?: object[] }>>(paths).flatMap(
      ([path, methods]) =>
        Object.entries(methods)
          .filter(([, { security }]) => security === undefined)
          .map(([method]) => ({ method: method.toUpperCase(), path })),
    );
    expect(routes.length).to.be.above(80);
    for (const secret of secrets) {
      const holder = anonymous.withToken(secret);
      for (const { method, path } of routes) {
        const body = method === 'GET' || method === 'DELETE' ? undefined : {};
        const { status } = await holder.send(method, path.replaceAll(/\{\w+\}/g, '1'), body);
        expect(status, `${method} ${path}`).to.equal(401);
      }
    }
  });

  it('processes of both builds serve the same tenants at once: sessions, keys and changes of one are those of the other', async () => {
    const installation = await install();
    await startTwo(installation, former);
    await installation.migrate(today);
    await startTwo(installation, today);
    const load = new UpgradeLoad(installation);

    await load.begin('both builds');
    await load.during('a signing key by the former build', () =>
      installation.succeed(former, ['key', 'rotate', 'acme']),
    );
    await load.during('a signing key by the later build', () =>
      installation.succeed(today, ['key', 'rotate', 'globex']),
    );
    await load.during('both builds');

    await load.end();
  });

  it('an upgrade with a migration that is not compatible is refused until the old processes have stopped', async () => {
    const next = await makeNextBuild();
    cleanUps.push(next.remove);
    const present = await copyBuild('src', 'migrations', 'scripts');
    cleanUps.push(present.remove);
    const installation = await UpgradedInstallation.make(present);
    cleanUps.push(() => installation.close());
    const old = await installation.start(present);
    await installation.succeed(present, ['processes']);

    const refused = await installation.run(next, ['migrate', '--all', '--json']);
    expect(refused.code, refused.stderr).to.equal(1);
    expect(JSON.parse(refused.stderr).error.blockedBy[0].pid).to.equal(old.process.pid);
    expect(await installation.stop(old)).to.equal(0);

    const stoppedAt = performance.now();
    await installation.succeed(next, ['migrate', '--all']);
    installation.inService.push(await installation.start(next));
    console.log(`      out of service for ${Math.round(performance.now() - stoppedAt)} ms`);
    const load = new UpgradeLoad(installation);
    await load.begin('next build');
    await load.end();
  });
});

/** What commands record in the control database. */
const recordedState = `
  select (select json_agg(t order by id) from tenants t)::text as tenants,
         (select json_agg(d order by d.tenant_id, database_name) from tenant_databases d)::text as databases,
         (select json_agg(a order by name) from archives a)::text as archives,
         (select count(*) from backup_runs) as backups,
         (select count(*) from migration_runs) as runs,
         (select count(*) from migration_outcomes) as outcomes`;

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
