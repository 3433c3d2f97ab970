import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { makeNextBuild, type NextBuild } from '../support/next-build.ts';
import { runCommand } from '../support/run-command.ts';
import { createWorld, sql, type TestTenant, type World } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
/**
 * Between two requests of a client: without a pause, they would take the CPU time of the
 * migration.
 */
const pauseMs = 20;

describe('drill: requests during compatible migrations, and after a rollback', () => {
  let world: World;
  let next: NextBuild;
  let client: Client;

  before(async () => {
    [world, next] = await Promise.all([createWorld(), makeNextBuild(compatibleMigration)]);
    await writeFile(next.file(`migrations/tenant/${afterNext}.ts`), secondCompatibleMigration);
    client = await world.login(world.acme);
  });
  after(async () => {
    await world.close();
    await next.remove();
  });

  const run = (...args: string[]) =>
    runCommand(next.file('scripts/tenant.ts'), args, world.environment);

  it('the build before a compatible migration serves reads and writes during it and after it', async () => {
    let migrating = true;
    const refused: unknown[] = [];
    let served = 0;

    const load = async (worker: number) => {
      for (let n = 0; migrating || n === 0; n++) {
        const responses = [
          await client.get(path, { 'Cache-Control': 'no-cache' }),
          await client.post(path, { Title: `During ${worker}.${n}` }),
        ];
        served += responses.length;
        refused.push(...responses.filter(({ status }) => status !== 200 && status !== 201));
        await delay(pauseMs);
      }
    };

    await run('list'); // loads the modules of the next build
    const workers = [load(1), load(2)];
    const { code, stderr } = await run('migrate', 'acme', 'globex');
    migrating = false;
    await Promise.all(workers);

    expect(code, stderr).to.equal(0);
    expect(stderr).to.equal('');
    expect(refused).to.deep.equal([]);
    expect(served).to.be.greaterThan(10);

    expect((await client.post(path, { Title: 'After' })).status).to.equal(201);
    const [after] = await sql(
      world.acme,
      `select colour from entity_statuses where title = 'After'`,
    );
    expect(after).to.deep.equal({ colour: 'grey' });

    // A connection that is opened after the migration verifies the new version.
    expect((await (await world.login(world.globex)).get(path)).status).to.equal(200);
  });

  it('a build before two compatible migrations serves the tenant after the rollback of the second one', async () => {
    const { code, stdout, stderr } = await run('rollback', 'acme', '--yes');
    expect(code, stderr).to.equal(0);
    expect(stdout).to.equal(`acme: ${afterNext} → ${next.head}\n`);
    expect(stderr).to.equal('');

    const response = await client.get(path, { 'Cache-Control': 'no-cache' });
    expect(response.status).to.equal(200);
    expect(response.body.code).to.equal(undefined);
    expect((await client.post(path, { Title: 'After' })).status).to.equal(201);
    // The other tenant keeps the second migration.
    expect(
      (await (await world.login(world.globex)).post(path, { Title: 'After' })).status,
    ).to.equal(201);
    const sizes = (tenant: TestTenant) => sql(tenant, "select to_regclass('sizes')::text as found");
    expect(await sizes(world.acme)).to.deep.equal([{ found: null }]);
    expect(await sizes(world.globex)).to.deep.equal([{ found: 'sizes' }]);
  });

  it('a build that could serve a tenant before a rollback that fails serves it afterwards', async () => {
    await sql(world.globex, 'create view uses_sizes as select from sizes');
    const { code, stderr } = await run('rollback', 'globex', '--yes');
    expect(code, stderr).to.equal(1);
    expect(stderr).to.equal(
      'globex was not rolled back: 9999-sizes: cannot drop table sizes because other objects depend on it.\n',
    );

    const response = await (await world.login(world.globex)).get(path, {
      'Cache-Control': 'no-cache',
    });
    expect(response.status).to.equal(200);
    expect(response.body.code).to.equal(undefined);
  });
});

const afterNext = '9999-sizes';

const secondCompatibleMigration = `
import { Migration } from '@mikro-orm/migrations';

export class Sizes extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('create table sizes (id integer)');
  }

  override down(): void {
    this.addSql('drop table sizes');
  }
}
`;

const compatibleMigration = `
import { Migration } from '@mikro-orm/migrations';

export class Colours extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql("alter table entity_statuses add column colour text not null default 'grey'");
    this.addSql('create index entity_statuses_colour_index on entity_statuses (colour)');
    this.addSql('select pg_sleep(0.3)');
  }

  override down(): void {
    this.addSql('alter table entity_statuses drop column colour');
  }
}
`;
