import { expect } from 'chai';
import { createControlPool } from '../../src/control/control-pool.ts';
import { type Installation, openInstallation } from '../../src/control/installation.ts';
import { newProcess } from '../../src/control/process-identity.ts';
import { sqlState } from '../../src/lib/postgres/database-error.ts';
import { eventually } from '../support/eventually.ts';
import { startSilentProxy } from '../support/silent-proxy.ts';
import { useWorld } from '../support/world.ts';

describe('pool of the control database', () => {
  const world = useWorld();

  it('a share that became smaller is not exceeded, even while requests wait for connections without a pause', async () => {
    let share = 4;
    const member = {
      process: newProcess('service'),
      maxControl: () => share,
      onControlRefused: () => {},
    };
    const pool = createControlPool(world.installation.controlUrl, share, member);
    let isLoaded = true;
    const load = Array.from({ length: 30 }, async () => {
      while (isLoaded) await pool.query('select pg_sleep(0.01)');
    });
    await eventually(() => pool.totalCount === share && pool.waitingCount > 0);

    share = 2;

    await eventually(() => pool.totalCount === share);
    expect(pool.waitingCount).to.be.above(0);
    isLoaded = false;
    await Promise.all(load);
    await pool.end();
  });

  it('a wait ends with the report of a silent server if it has sent nothing meanwhile, and of too many waiters otherwise', async () => {
    const url = world.installation.controlUrl;
    const proxy = await startSilentProxy();
    const [silent, busy] = [createControlPool(proxy.through(url), 1), createControlPool(url, 1)];
    const codeOf = (query: Promise<unknown>) => query.then(() => undefined, sqlState);
    await silent.query('select 1');
    proxy.silence(new URL(url).pathname.slice(1));

    const unanswered = silent.query('select 1');
    unanswered.catch(() => {});
    const many = Array.from({ length: 100 }, () => codeOf(busy.query('select pg_sleep(0.1)')));

    expect(await codeOf(silent.query('select 1'))).to.equal('ETIMEDOUT');
    expect(await codeOf(unanswered)).to.equal('ETIMEDOUT');
    expect(new Set(await Promise.all(many))).to.deep.equal(new Set([undefined, 'POOL_TIMEOUT']));
    await Promise.all([silent.end(), busy.end()]);
    await proxy.close();
  });

  describe('of a command', () => {
    let installation: Installation;

    before(async () => {
      installation = await openInstallation(world.config, 'command');
    });
    after(() => installation.close());

    it('a command has one connection to the control database, which statements and entity managers share, in whatever order they come', async () => {
      const backend = 'select pg_backend_pid() as pid';

      const first = await installation.statements.query<{ pid: number }>(backend);
      const { em } = await installation.control();
      const inTransaction = await em
        .fork()
        .transactional(each => each.execute<{ pid: number }[]>(backend));
      const last = await installation.statements.query<{ pid: number }>(backend);

      expect(inTransaction).to.deep.equal(first.rows);
      expect(last.rows).to.deep.equal(first.rows);
    });

    it('a command opens its entity managers once, also for tasks that need them at the same time', async () => {
      const [one, other] = await Promise.all([installation.control(), installation.control()]);

      expect(one).to.equal(other);
    });

    it('statements and entity managers of a command return the same values', async () => {
      const values = `
        select date '2026-02-03' as day, timestamptz '2026-02-03 04:05:06.789012Z' as moment,
               timestamp '2026-02-03 04:05:06.789012' as local, interval '1 day 2 s' as age,
               array[timestamptz '2026-02-03 04:05:06.789012Z'] as moments, 9007199254740993 as large,
               1.5 as exact, 2 as small, true as flag, '{"a": [1]}'::jsonb as document, array['a', null] as texts`;
      const { em } = await installation.control();

      const {
        rows: [stated],
      } = await installation.statements.query(values);
      const [managed] = await em.fork().execute<object[]>(values);

      expect(stated).to.deep.equal(managed);
      expect(stated).to.include({ day: '2026-02-03', large: '9007199254740993', small: 2 });
    });
  });
});
