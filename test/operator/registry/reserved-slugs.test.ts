import { expect } from 'chai';
import { lockSpaces } from '../../../src/lib/postgres/advisory-locks.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { readLaterState, replay } from '../../../src/operator/recovery/replay.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { controlSql, useWorld } from '../../support/world.ts';
import { slugCommands } from './slug-commands.ts';

describe('slugs that several commands want', () => {
  const world = useWorld();

  const { run, runWell, provision, endAlias } = slugCommands(world);

  const slugOf = async (guid: string) =>
    (await controlSql<{ slug: string }>(world, 'select slug from tenants where guid = ?', [guid]))
      .map(({ slug }) => slug)
      .join();
  /** Inserts a tenant without a database; returns its guid. */
  const insertTenant = async (slug: string, status = 'active', isolated = false) => {
    const [row] = await controlSql<{ guid: string }>(
      world,
      `insert into tenants (slug, name, app_id, status, isolated, server_id, database_name, role_name, role_password)
       select ?, ?, 'x', ?, ?, server_id, ?, 'none', role_password from tenants limit 1 returning guid`,
      [slug, `${slug} Ltd`, status, isolated, `none of ${slug}`],
    );
    return row?.guid ?? '';
  };

  /**
   * Runs a command while a transaction of somebody else is open, which commits as soon as the
   * command waits for it.
   */
  const beside = (statements: string, command: () => ReturnType<typeof run>) =>
    withConnection(world.config.databaseUrl ?? '', async other => {
      await other.query(`begin; ${statements}`);
      const running = command();
      let hasEnded = false;
      void running.finally(() => (hasEnded = true));

      await eventually(async () => hasEnded || (await readLockWaiters(other)).length > 0, 20_000);
      expect(hasEnded, 'the command waits').to.equal(false);
      await other.query('commit');

      return running;
    });

  it('a slug that led to a served company only as an alias is reserved when the alias ends', async () => {
    const guid = await insertTenant('paused', 'suspended');
    await controlSql(world, `update tenants set slug = 'paused-two' where slug = 'paused'`);
    await runWell('edit', 'paused-two', '--alias-days', '9');
    await controlSql(world, `update tenants set status = 'active' where guid = ?`, [guid]);
    await endAlias('paused');

    const refused = await provision('paused');

    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.include(`paused was the slug of paused Ltd (${guid})`);
  });

  it('a provision by --reuse-slug that is given up leaves the slug reserved', async () => {
    const guid = await insertTenant('reused');
    await controlSql(world, `delete from tenants where slug = 'reused'`);
    await controlSql(
      world,
      `create function refuse_database() returns trigger language plpgsql as $$
       begin raise exception 'no more databases'; end $$;
       create trigger refuse_database before insert on tenant_databases
         for each row execute function refuse_database()`,
    );
    const failed = await provision('reused', '--reuse-slug', '--yes');
    await controlSql(world, 'drop function refuse_database cascade');
    expect(failed.code).to.equal(1);
    const [begun] = await controlSql<{ guid: string }>(
      world,
      `select guid from tenants where slug = 'reused' and status = 'provisioning'`,
    );
    expect(begun?.guid).to.be.a('string').and.not.equal(guid);

    await runWell('purge', 'reused', '--yes');

    const refused = await provision('reused');
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.include('reused was the slug of reused Ltd');
  });

  it('an edit of aliases beside a purge leaves no alias of a tenant that is gone', async () => {
    await insertTenant('leaving');
    await controlSql(world, `update tenants set slug = 'left' where slug = 'leaving'`);

    const edited = await beside(`delete from tenants where slug = 'left'`, () =>
      run('edit', 'left', '--alias-days', '30000'),
    );

    expect(edited.code, edited.stdout).to.equal(1);
    expect(edited.stderr).to.include('There is no tenant left');
    expect((await provision('leaving', '--reuse-slug', '--yes')).code).to.equal(0);
  });

  it('an edit of a tenant that a purge has removed meanwhile does not succeed', async () => {
    await insertTenant('going');

    const edited = await beside(`delete from tenants where slug = 'going'`, () =>
      run('edit', 'going', '--name', 'Gone Ltd'),
    );

    expect(edited.code, edited.stdout).to.equal(1);
    expect(edited.stderr).to.include('There is no tenant going');
  });

  it('of two commands that want one slug at once, one gets it, and the other says so', async () => {
    for (const [slug, args] of [
      ['wanted', ['provision', 'wanted', '--name', 'x', '--admin-email', 'a@b.test']],
      ['copied', ['clone', 'globex', 'copied']],
      ['edited', ['edit', 'globex', '--slug', 'edited']],
    ] as const) {
      const taken = await beside(`update tenants set slug = '${slug}' where slug = 'acme'`, () =>
        run(...args),
      );
      await controlSql(world, `update tenants set slug = 'acme' where slug = ?`, [slug]);

      expect(taken.code, slug).to.equal(1);
      expect(taken.stderr, slug).to.include(`${slug} was given to another tenant meanwhile`);
      expect(await slugOf(world.globex.guid)).to.equal('globex');
    }
  });

  it('a slug that becomes an alias or reserved while a command wants it is not given to it', async () => {
    const former = await beside(
      `update tenants set slug = 'former' where slug = 'acme';
       update tenants set slug = 'acme' where slug = 'former'`,
      () => provision('former'),
    );

    expect(former.code).to.equal(1);
    expect(former.stderr).to.include('former was given to another tenant meanwhile');
  });

  it('of two edits of one tenant at once, the second changes nothing', async () => {
    const second = await beside(
      `update tenants set slug = 'acme-first' where guid = '${world.acme.guid}'`,
      () => run('edit', 'acme', '--slug', 'acme-second'),
    );

    expect(second.code).to.equal(1);
    expect(await slugOf(world.acme.guid)).to.equal('acme-first');
    expect((await provision('acme-second')).code, 'the second is free').to.equal(0);
    await runWell('edit', 'acme-first', '--slug', 'acme');
  });

  it('a purge that waits removes the tenant that it was confirmed for, whoever has the slug then', async () => {
    const [one, other] = [
      await insertTenant('left-copy', 'deleted', true),
      await insertTenant('kept-copy', 'deleted', true),
    ];

    const purged = await withConnection(world.config.databaseUrl ?? '', async holder => {
      await holder.query(
        `select pg_advisory_lock(${lockSpaces.tenant}, id::int) from tenants where slug = 'left-copy'`,
      );
      const running = run('purge', 'left-copy', '--yes');
      await eventually(async () => (await readLockWaiters(holder)).length > 0, 20_000);
      await holder.query(
        `update tenants set slug = 'moved-copy' where slug = 'left-copy';
         update tenants set slug = 'left-copy' where slug = 'kept-copy'`,
      );
      await holder.query('select pg_advisory_unlock_all()');
      return running;
    });

    expect(await slugOf(other), purged.stderr).to.equal('left-copy');
    const [begun] = await controlSql<{ begun: boolean }>(
      world,
      'select bool_or(purging_at is not null) as begun from tenants where guid = ?',
      [other],
    );
    expect(begun?.begun).to.equal(false);
    expect(await slugOf(one)).to.be.oneOf(['', 'moved-copy']);
  });

  it('a restore of an older control database gives exchanged slugs to the tenants that had them later', async () => {
    const exchange = (slug: string, by: string, guid: string) =>
      `update tenants set slug = '${by}' where slug = '${slug}';
       update tenant_slugs set tenant_guid = '${guid}' where slug = '${slug}';`;
    const { acme, globex } = world;

    const [replayed, found] = await withConnection(world.config.databaseUrl ?? '', async client => {
      await client.query(
        `begin; ${exchange('globex', 'parked', acme.guid)} ${exchange('acme', 'globex', globex.guid)}
           update tenants set slug = 'acme' where slug = 'parked'`,
      );
      const later = await readLaterState(client);
      await client.query('rollback; begin');
      const result = await replay(client, later);
      const { rows } = await client.query(
        `select t.slug, t.guid = tenant_named(t.slug) as leads from tenants t
            where guid in ($1, $2) order by guid = $1 desc`,
        [acme.guid, globex.guid],
      );
      await client.query('rollback');

      return [result, rows] as const;
    });

    expect(found).to.deep.equal([
      { slug: 'globex', leads: true },
      { slug: 'acme', leads: true },
    ]);
    expect(replayed.tenantsRenamed).to.deep.equal([
      { slug: 'acme', from: 'globex' },
      { slug: 'globex', from: 'acme' },
    ]);
  });
});
