import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { controlSql, sql, useLogin, useWorld } from '../support/world.ts';

const rows = 30_000;
const csv = { 'Content-Type': 'text/csv' };
const path = '/api/v1/Imports?resource=Entity&ids=own';
/** The lease of an import, and the interval at which processes look for imports. */
const maxResumeMs = 15_000;

const fileOf = (count: number): string =>
  `Name,EntityType,StatusId\n${Array.from({ length: count }, (_, index) => `Customer ${index},customer,${1 + (index % 3)}`).join('\n')}\n`;

describe('drill: imports of killed processes', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const { start } = useServiceProcesses();

  /** Waits until an import has rows in the table that are not committed: only its size shows them. */
  const isApplying = () =>
    eventually(async () => {
      const [row] = await sql<{ size: number }>(world.acme, `select pg_table_size('entities')::int as size`);
      return (row?.size ?? 0) > 500_000;
    }, 60_000);
  const counts = async () =>
    (
      await sql(
        world.acme,
        `select (select count(*)::int from entities) as entities,
                (select count(*)::int from audit_log where resource = 'Entity') as entries`,
      )
    )[0];

  it('an import whose process is killed leaves nothing, and another process makes all of it once, without being asked', async () => {
    const running = await start(world.environment);
    const { status } = await admin.at(running.url).post(path, fileOf(rows), csv);
    expect(status).to.equal(202);
    await isApplying();
    running.process.kill('SIGKILL');
    await running.ended;
    const killedAt = performance.now();
    expect(await counts()).to.include({ entities: 0, entries: 0 });

    await eventually(async () => (await sql(world.acme, 'select from imports where attempts = 2')).length > 0, 60_000);
    const resumedMs = performance.now() - killedAt;
    console.log(`resumed after ${Math.round(resumedMs)} ms`);
    expect(resumedMs).to.be.below(maxResumeMs + 5_000); // PostgreSQL ends the transaction of the killed process
    const [done] = await eventually(async () => {
      const ended = await sql(world.acme, `select rows, created, refused from imports where state = 'done'`);
      return ended.length > 0 && ended;
    }, 120_000);
    expect(done).to.deep.equal({ rows, created: rows, refused: 0 });
    expect(await counts()).to.include({ entities: rows, entries: rows });
    await eventually(async () => (await controlSql(world, 'select from unfinished_imports')).length === 0);
  });

  it('a file that is sent with one key until it is accepted makes one import, however often its process is killed', async () => {
    const environment = { ...world.environment, PORT: String(await freePort()) };
    for (let round = 0; round < 6; round++) {
      await sql(world.acme, 'delete from imports');
      const before = (await counts()) as { entities: number };
      const headers = { ...csv, 'Idempotency-Key': randomUUID() };
      const running = await start(environment);
      const client = admin.at(running.url);
      const persist = () =>
        eventually(async () => {
          const response = await client.post(path, fileOf(5_000), headers).catch(() => undefined);
          return response?.status === 202 && response;
        }, 60_000);
      const accepted = Promise.all([persist(), persist()]);
      await new Promise(resolve => setTimeout(resolve, 40 * round));
      running.process.kill('SIGKILL');
      await running.ended;
      const restarted = await start(environment);
      const bodies = new Set((await accepted).map(({ body }) => JSON.stringify(body)));
      expect([...bodies]).to.have.length(1);
      await eventually(
        async () => (await sql(world.acme, `select from imports where state = 'done'`)).length > 0,
        60_000,
      );
      expect(await counts()).to.include({ entities: before.entities + 5_000 });
      // A process that is killed just before it names the row of its file in the queue leaves that row for an hour.
      await eventually(async () => (await controlSql(world, 'select from unfinished_imports')).length === 0, 30_000);
      expect(await sql(world.acme, `select from imports where state <> 'receiving'`)).to.have.length(1);
      restarted.process.kill('SIGTERM');
      await restarted.ended;
    }
  });

  it('a process that is asked to end stops its import, which another process makes then', async () => {
    await sql(world.acme, 'delete from imports');
    const before = (await counts()) as { entities: number };
    const running = await start(world.environment);
    await admin.at(running.url).post(path, fileOf(rows), csv);
    await eventually(
      async () => (await sql(world.acme, `select from imports where state = 'running'`)).length > 0,
      60_000,
    );
    running.process.kill('SIGINT');
    expect((await running.ended).code).to.equal(0);
    const [done] = await eventually(async () => {
      const ended = await sql(world.acme, `select created, attempts from imports where state = 'done'`);
      return ended.length > 0 && ended;
    }, 120_000);
    expect(done).to.deep.equal({ created: rows, attempts: 1 });
    expect(await counts()).to.include({ entities: before.entities + rows });
  });
});
