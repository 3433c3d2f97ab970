import { expect } from 'chai';
import { rememberNetwork } from '../../../src/accounts/auth/login-networks.ts';
import { transactControl } from '../../../src/control/database.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { Client } from '../../support/client.ts';
import { controlSql, useWorld } from '../../support/world.ts';

interface Access {
  /** Sequential scans of the table, and rows that its indexes led to, in one transaction. */
  scans: number;
  fetched: number;
  deleted: number;
}

describe('networks that users have logged in from', () => {
  const world = useWorld();
  let url: string;

  before(async () => {
    ({ url } = await world.startAnotherServer({ TRUSTED_PROXIES: '127.0.0.1' }));
  });
  afterEach(() => controlSql(world, 'delete from login_networks'));

  const logIn = async (address: string): Promise<void> => {
    const headers = { 'X-Tenant': world.globex.guid, 'X-Forwarded-For': address };
    expect(
      (await new Client(url).post('/api/v1/auth/login', world.globex.admin, headers)).status,
    ).to.equal(200);
  };
  const userId = async (): Promise<number> =>
    Number(
      (
        await controlSql<{ id: string }>(world, 'select id from users where tenant_id = ?', [
          world.globex.id,
        ])
      )[0]?.id,
    );
  const networks = async () =>
    (
      await controlSql<{ network: string }>(world, 'select network from login_networks order by 1')
    ).map(({ network }) => network);
  /** Adds networks of the user, the first of which is the oldest. */
  const addNetworks = (user: number, count: number, youngest: string) =>
    controlSql(
      world,
      `insert into login_networks (user_id, network, last_login_at)
         select ?, 'network ' || to_char(i, 'FM000000'), now() - ?::interval - interval '1 s' * (?::int - i)
           from generate_series(1, ?::int) i`,
      [user, youngest, count, count],
    );
  const readAccess = `
    select seq_scan::int as scans, idx_tup_fetch::int as fetched, n_tup_del::int as deleted
      from pg_stat_xact_user_tables where relname = 'login_networks'`;
  const remember = (user: number, network: string): Promise<Access> =>
    transactControl(world.control, async query => {
      await query('lock_user', 'select from users where id = $1 for no key update', [user]);
      // The counters also have accesses of earlier transactions of the session.
      const [before] = (await query<Access>('access', readAccess, [])) as [Access];
      await rememberNetwork(query, user, network);
      const [after] = (await query<Access>('access', readAccess, [])) as [Access];
      return {
        scans: after.scans - before.scans,
        fetched: after.fetched - before.fetched,
        deleted: after.deleted - before.deleted,
      };
    });

  it('a login from a known network adds no row, and networks unused for 30 days are deleted', async () => {
    for (const address of ['192.0.2.9', '192.0.2.9', '2001:db8::1', '2001:db8::2']) {
      await logIn(address);
    }
    expect(await networks()).to.deep.equal(['192.0.2.9', '2001:db8:0:0::/64']);

    await controlSql(
      world,
      `update login_networks set last_login_at = now() - interval '31 days' where network = ?`,
      ['192.0.2.9'],
    );
    await logIn('2001:db8:0:1::3');
    expect(await networks()).to.deep.equal(['2001:db8:0:0::/64', '2001:db8:0:1::/64']);
  });

  it('a login from a 51st network removes the oldest network of its user, and no network of another user', async () => {
    const user = await userId();
    await addNetworks(user, 50, '1 hour');
    await controlSql(
      world,
      `insert into login_networks select id, 'of another user', now() - interval '2 days'
         from users where id <> ? limit 1`,
      [user],
    );

    await logIn('192.0.2.1');
    await logIn('192.0.2.1');

    const left = await networks();
    expect(left).to.have.length(51);
    expect(left).to.include.members(['of another user', '192.0.2.1', 'network 000002']);
    expect(left).to.not.include('network 000001');

    // A login from one of the networks keeps it, however old it was.
    await controlSql(
      world,
      `update login_networks set last_login_at = now() - interval '2 days'
                              where network = 'network 000050'`,
    );
    await remember(user, 'network 000050');
    await logIn('192.0.2.2');

    expect(await networks())
      .to.include('network 000050')
      .and.not.include('network 000002');
  });

  it('networks of users who never return are removed by logins of others, 100 at a time', async () => {
    const [absent] = await controlSql<{ id: string }>(
      world,
      'select id from users where tenant_id = ?',
      [world.acme.id],
    );
    await addNetworks(Number(absent?.id), 150, '31 days');

    await logIn('192.0.2.1');
    expect(await networks())
      .to.have.length(51)
      .and.include('network 000150');
    await logIn('192.0.2.2');
    expect(await networks()).to.deep.equal(['192.0.2.1', '192.0.2.2']);
  });

  it('concurrent logins from new networks remove expired networks without a deadlock', async () => {
    const [absent] = await controlSql<{ id: string }>(
      world,
      'select id from users where tenant_id = ?',
      [world.acme.id],
    );
    const user = await userId();
    await addNetworks(Number(absent?.id), 400, '31 days');

    await withConnection(world.installation.controlUrl, async client => {
      await client.query('begin');
      await client.query(`select from login_networks where network <= 'network 000010' for update`);
      await Promise.all([
        ...Array.from({ length: 4 }, (_, i) => remember(user, `192.0.2.${i}`)),
        ...Array.from({ length: 4 }, (_, i) => remember(Number(absent?.id), `network 00020${i}`)),
      ]);
      await client.query('rollback');
    });

    const left = await networks();
    for (let i = 0; i < 4; i++) {
      expect(left).to.include.members([`192.0.2.${i}`, `network 00020${i}`]);
    }
    expect(left.filter(network => network <= 'network 000010' && network > 'n')).to.have.length(10);
    expect(left).to.have.length(18);
  });

  it('a login reads few rows of a table with 20,000 networks, whether they have expired or not', async () => {
    const user = await userId();
    await controlSql(
      world,
      `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, scope)
         select tenant_id, 'user' || i || '@globex.test', 'x', 'x', 'x', role_id, scope
           from users, generate_series(1, 400) i where id = ?`,
      [user],
    );

    for (const age of ['1 day', '31 days']) {
      await controlSql(world, 'delete from login_networks');
      await controlSql(
        world,
        `insert into login_networks (user_id, network, last_login_at)
           select id, 'network ' || i, now() - ?::interval - interval '1 s' * i from users, generate_series(1, 50) i
            where id >= ?`,
        [age, user],
      );
      await controlSql(world, 'analyze login_networks'); // in production, autovacuum does

      const first = await remember(user, '192.0.2.1');
      expect(first).to.include(
        age === '1 day' ? { scans: 0, deleted: 1 } : { scans: 0, deleted: 101 },
      );
      expect(first.fetched).to.be.within(50, 250);
      expect(await remember(user, '192.0.2.1')).to.deep.equal({ scans: 0, fetched: 1, deleted: 0 });
    }
  });
});
