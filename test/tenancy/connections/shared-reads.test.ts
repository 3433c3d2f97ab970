import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { RowValues, Statement } from '../../../src/lib/postgres/statement.ts';
import { withDeadline } from '../../../src/lib/runtime/deadline.ts';
import { type SharedRead, SharedReads } from '../../../src/tenancy/connections/shared-reads.ts';
import type { TenantDriver } from '../../../src/tenancy/connections/tenant-driver.ts';
import { eventually } from '../../support/eventually.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

const maxConnections = 2;
const maxGroupSize = 8; // reads that share a connection
const pidOf = 'select pg_backend_pid() as pid, $1::int as number';

describe('connections that reads share', () => {
  const world = useWorld({ TENANT_CONNECTIONS: String(maxConnections) });
  const admin = useLogin(world, 'acme');

  before(async () => {
    await sql(
      world.acme,
      'create table probes (id int primary key, name text); insert into probes values (1, null)',
    );
    await openDatabase();
    await sql(
      world.acme,
      `grant select on probes to "${decodeURIComponent(new URL(database().url).username)}"`,
    );
  });
  beforeEach(() => openDatabase());

  const openDatabase = () => admin.get('/api/v1/Activity');

  /** The database of the tenant, which `openDatabase` uses. */
  function database(): TenantDriver {
    const { databases } = world.service;
    const [server = ''] = databases.budgets.all.keys();
    const found = databases.lastUsedOn(server);
    if (!found) throw new Error('no database is open');
    return found;
  }

  const statement = (text: string, values: unknown[] = [], isShort = true): Statement => ({
    name: `test ${text}`.slice(0, 63),
    text,
    values,
    isShort,
  });

  /**
   * Reads as a request with this time left does. Those of one turn of the event loop arrive
   * together.
   */
  const read = (select: Statement, ms = 9_500): Promise<RowValues[]> =>
    withDeadline(ms, deadline => database().reads.read(select, deadline));

  const outcomeOf = (reading: Promise<RowValues[]>): Promise<unknown> =>
    reading.then(
      ([row]) => row?.value,
      error => error.code ?? error.message,
    );

  it('reads of one statement that arrive together use one connection, and each gets its own rows', async () => {
    const numbers = Array.from({ length: maxGroupSize }, (_, number) => number);
    const rows = (
      await Promise.all(numbers.map(number => read(statement(pidOf, [number]))))
    ).flat();
    expect(rows.map(({ number }) => number)).to.deep.equal(numbers);
    expect(new Set(rows.map(({ pid }) => pid)).size).to.equal(1);
  });

  it('reads of a statement that is not short use a connection each', async () => {
    const wait = statement('select pg_backend_pid() as pid, pg_sleep(0.1)', [], false);
    const rows = (await Promise.all([read(wait), read(wait)])).flat();
    expect(new Set(rows.map(({ pid }) => pid)).size).to.equal(2);
  });

  it('a read that fails does not fail the reads that share its connection', async () => {
    const divide = (by: number) => outcomeOf(read(statement('select 6 / $1::int as value', [by])));
    expect(await Promise.all([divide(1), divide(0), divide(2)])).to.deep.equal([6, '22012', 3]);
  });

  it('reads are made again on other connections when the one that they share is lost', async () => {
    const text =
      'select case when $1 then pg_terminate_backend(pg_backend_pid())::int end as value';
    const end = (ends: boolean) => outcomeOf(read(statement(text, [ends])));
    expect(await Promise.all([end(false), end(true), end(false)])).to.deep.equal([
      null,
      '57P01',
      null,
    ]);
  });

  const sleep = (seconds: number, ms?: number) =>
    outcomeOf(read(statement('select 1 as value, pg_sleep($1)', [seconds]), ms));

  it('a read does not wait for a slow read of its statement that arrived with it', async () => {
    const key = 4711;
    const waiting = (waits: boolean) => {
      const text = `select 1 as value, case when $1::bool then pg_advisory_xact_lock(${key})::text end`;
      return outcomeOf(read(statement(text, [waits])));
    };

    await withConnection(world.acme.adminUrl, async session => {
      await session.query('select pg_advisory_lock($1)', [key]);
      const slow = waiting(true);
      const quick = waiting(false);

      expect(await quick).to.equal(1);

      await session.query('select pg_advisory_unlock($1)', [key]);
      expect(await slow).to.equal(1);
    });
  });

  it('a read whose deadline passes does not fail a read that shared its connection', async () => {
    const [value] = await Promise.all([sleep(2), sleep(5, 1_100)]);
    expect(value).to.equal(1);
  });

  it('reads of a statement that turned out to be slow use a connection each', async () => {
    const slow = () => read(statement('select pg_backend_pid() as pid, pg_sleep(0.2)'));
    await Promise.all([slow(), slow()]);
    const pids = (await Promise.all([slow(), slow()])).flat().map(({ pid }) => pid);
    expect(new Set(pids).size).to.equal(2);
  });

  it('reads are made again, each on its own, when the connection that they wait for is lost while it opens', async () => {
    const lost = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
    const reads = new SharedReads({
      connect: () => Promise.reject(lost),
      readOn: () => Promise.reject(lost),
      readAlone: async <Row extends object>({ select }: SharedRead<Row>) => [
        { value: select.values[0] } as Row,
      ],
    });

    const values = [1, 2].map(value =>
      outcomeOf(reads.read({ select: statement(pidOf, [value]) })),
    );

    expect(await Promise.all(values)).to.deep.equal([1, 2]);
  });

  it('reads of a locked table do not hold up reads of another statement that arrive with them', async () => {
    await withConnection(world.acme.adminUrl, async session => {
      await session.query('begin; lock table probes');
      const locked = Array.from({ length: 3 }, () => read(statement('select name from probes')));
      const others = [1, 2].map(number => read(statement(pidOf, [number])));
      expect((await Promise.all(others)).flat().map(({ number }) => number)).to.deep.equal([1, 2]);
      await session.query('rollback');
      for (const rows of await Promise.all(locked)) expect(rows).to.deep.equal([{ name: null }]);
    });
  });

  it('reads of different statements that wait for a connection do not wait for each other', async () => {
    await withConnection(world.acme.adminUrl, async session => {
      await session.query('begin; lock table probes');
      const locked = Array.from({ length: maxConnections }, () =>
        read(statement('select id from probes', [], false)),
      );
      await eventually(() => world.service.databases.budgets.usage.inUse === maxConnections);

      const texts = [1, 2, 3].map(number => `${pidOf}, ${number} as other`);
      const waiting = texts.flatMap(text => [1, 2].map(number => read(statement(text, [number]))));
      await eventually(() => world.service.databases.budgets.usage.waiting === texts.length);

      await session.query('rollback');
      await Promise.all([...locked, ...waiting]);
    });
  });

  it('a prepared statement returns the columns that its table has now', async () => {
    const all = statement('select * from probes', [], false);
    expect(await read(all)).to.deep.equal([{ id: 1, name: null }]);
    expect(await read(all)).to.deep.equal([{ id: 1, name: null }]);
    await sql(
      world.acme,
      `alter table probes alter column id type text, add column added int default 7`,
    );
    expect(await read(all)).to.deep.equal([{ id: '1', name: null, added: 7 }]);
    expect(await read(all)).to.deep.equal([{ id: '1', name: null, added: 7 }]);
  });
});
