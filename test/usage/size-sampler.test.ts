import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { loadTenant } from '../../src/control/load-tenant.ts';
import { newProcess } from '../../src/control/process-identity.ts';
import { SizeSampler } from '../../src/usage/size-sampler.ts';
import { createUsageStore } from '../../src/usage/usage-store.ts';
import { controlSql, sql, useWorld } from '../support/world.ts';

describe('sizes of databases in the recorded usage', () => {
  const world = useWorld();

  const execute = <Row extends object>(text: string): Promise<Row[]> => controlSql<Row>(world, text);
  const sizes = (): Promise<{ slug: string; bytes: number }[]> =>
    execute(`select slug, database_bytes::float8 as bytes from tenant_usage join tenants on id = tenant_id
              where database_bytes is not null order by slug`);
  /** Lets time pass, as far as the turn of sampling is concerned. */
  const pass = (interval: string): Promise<unknown[]> =>
    execute(`update usage_sampling set claimed_at = claimed_at - interval '${interval}',
                    round_started_at = round_started_at - interval '${interval}'`);

  function createSampler(): SizeSampler {
    const { control, installation, log } = world;
    const store = createUsageStore(control, newProcess('service'), randomUUID());
    const directory = { tenant: (guid: string) => loadTenant(guid, { ...installation, log }) };
    return new SizeSampler({ store, directory, databases: world.service.databases, log });
  }

  it('one process samples each database once an hour, at most one in a second, and another one takes over when it is gone', async () => {
    const [first, second] = [createSampler(), createSampler()];
    expect(await first.sample()).to.equal(true);
    expect(await Promise.all([first.sample(), second.sample()])).to.deep.equal([false, false]);
    await pass('2 s');
    expect([await second.sample(), await first.sample()]).to.deep.equal([false, true]);
    const sampled = await sizes();
    expect(sampled.map(({ slug }) => slug)).to.deep.equal(['acme', 'globex']);
    for (const [index, { bytes }] of sampled.entries()) {
      const tenant = index === 0 ? world.acme : world.globex;
      const [row] = await sql<{ bytes: string }>(tenant, 'select pg_database_size(current_database()) as bytes');
      expect(bytes / Number(row?.bytes)).to.be.closeTo(1, 0.05);
    }
    await pass('2 s');
    expect([await first.sample(), await second.sample()]).to.deep.equal([false, false]); // all have a size of this hour
    await pass('1 hour');
    expect([await second.sample(), await first.sample()]).to.deep.equal([true, false]);
    await second.stop();
    await pass('2 s');
    expect(await first.sample()).to.equal(true);
  });

  it('a tenant that is not served is not sampled, and the others are', async () => {
    await execute(`update tenants set status = 'suspended' where slug = 'acme'`);
    await execute('update tenant_usage set database_bytes = null');
    await pass('1 hour');
    const sampler = createSampler();
    expect(await sampler.sample()).to.equal(true);
    expect((await sizes()).map(({ slug }) => slug)).to.deep.equal(['globex']);
    await execute(`update tenants set status = 'active' where slug = 'acme'`);
  });

  it('while the control database fails, sampling is tried less and less often, and logged once until it succeeds', async () => {
    const warnings = (): number => world.logs.filter(line => line.includes('"sizes_not_sampled"')).length;
    const sampler = createSampler();
    const turns = async (count: number): Promise<number[]> => {
      const seconds: number[] = [];
      for (let turn = 0; turn < count; turn++) seconds.push((await sampler.sampleNext()) / 1_000);
      return seconds;
    };
    for (const logged of [1, 2]) {
      await execute('alter table usage_sampling rename to usage_sampling_away');
      expect(await turns(7)).to.deep.equal([10, 20, 40, 80, 160, 300, 300]);
      await execute('alter table usage_sampling_away rename to usage_sampling');
      expect(warnings()).to.equal(logged);
      await pass('1 hour');
      expect(await turns(1)).to.deep.equal([1]);
    }
  });

  it('a tenant whose database does not respond delays no other one, and has no size', async () => {
    const [server] = await execute<{ database_name: string }>(`select database_name from tenants where slug = 'acme'`);
    await execute(`update tenants set database_name = 'gone', updated_at = now() where slug = 'acme'`);
    await execute('update tenant_usage set database_bytes = null');
    const sampler = createSampler();
    for (let turn = 0; turn < 2; turn++) {
      await pass('1 hour');
      expect(await sampler.sampleNext()).to.equal(1_000);
    }
    expect((await sizes()).map(({ slug }) => slug)).to.deep.equal(['globex']);
    await execute(
      `update tenants set database_name = '${server?.database_name}', updated_at = now() where slug = 'acme'`,
    );
  });

  it('hours and processes of more than 100 days ago are removed, and younger ones stay', async () => {
    for (const days of [99, 101]) {
      await execute(
        `insert into tenant_usage (tenant_id, hour) values (${world.acme.id}, now() - interval '${days} days')`,
      );
      await execute(
        `insert into usage_writers (id, process, host, pid, batch, requests, counted_until, written_at)
         values (gen_random_uuid(), gen_random_uuid(), 'old', ${days}, 1, 0, now(), now() - interval '${days} days')`,
      );
    }
    await pass('1 hour');
    expect(await createSampler().sample()).to.equal(true);
    const [old] = await execute(
      `select (select count(*)::int from tenant_usage where hour < now() - interval '1 day') as hours,
              (select count(*)::int from usage_writers where host = 'old') as writers`,
    );
    expect(old).to.deep.equal({ hours: 1, writers: 1 });
  });
});
