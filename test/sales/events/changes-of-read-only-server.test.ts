import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { use } from '../../support/use.ts';

const path = '/api/v1/OrderStatuses';

describe('the feed of changes on a server that takes no writes for a time', () => {
  const servers = use(() => TwoServers.start({}));
  let acme: Client;
  let globex: Client;

  before(async () => {
    const { world } = servers;
    [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
    for (const client of [acme, globex]) {
      expect((await client.post(path, { Name: 'first' })).status).to.equal(201);
    }
    await world.service.stop();
  });

  const onTenant = async <Row extends object>(slug: string, text: string): Promise<Row[]> =>
    withConnection(await servers.currentUrl(slug), async client => {
      await client.query('set transaction_read_only = off');
      return (await client.query<Row>(text)).rows;
    });
  const isOwn = async (slug: string) => {
    const [found] = await onTenant<{ isOwn: boolean }>(
      slug,
      'select system_identifier is not distinct from system_identifier() as "isOwn" from tenant_identity',
    );
    return found?.isOwn;
  };
  const takesWrites = async (is: boolean) => {
    await servers.onSecond(`alter system set default_transaction_read_only = ${is ? 'off' : 'on'}`);
    await servers.onSecond('select pg_reload_conf()');
    await eventually(() =>
      withConnection(servers.second.url, async client => {
        const { rows } = await client.query('show default_transaction_read_only');
        return rows[0]?.default_transaction_read_only === (is ? 'off' : 'on');
      }),
    );
  };

  /**
   * Gives the database of a tenant, which comes to the second server, the ids and the identity of
   * a cluster whose counter is ahead.
   * @returns a cursor from before
   */
  async function comeFromElsewhere(slug: string, admin: Client): Promise<string | null> {
    await servers.move(slug, '--to', 'second');
    const { service, url } = await servers.world.startAnotherServer();
    expect((await admin.at(url).post(path, { Name: 'before' })).status).to.equal(201);
    const now = await admin.at(url).get('/api/v1/Changes?after=now');
    await service.stop();
    await onTenant(
      slug,
      `set session_replication_role = replica;
       update audit_log set feed_xid = (feed_xid::text::bigint + 3000000)::text::xid8;
       update tenant_identity set system_identifier = system_identifier + 1`,
    );

    return now.headers.get('next-cursor');
  }

  const createAfter = (client: Client) =>
    eventually(async () => {
      const response = await client.post(path, { Name: 'after' });
      return response.status !== 503 && response;
    });

  it('open connections begin the new era before they write, once the server takes writes', async () => {
    const cursor = await comeFromElsewhere('acme', acme);

    await takesWrites(false);
    const { url } = await servers.world.startAnotherServer();
    for (let count = 0; count < 3; count++) {
      expect((await acme.at(url).get(path)).status).to.equal(200);
    }
    expect(await isOwn('acme')).to.equal(false);
    await takesWrites(true);

    expect((await createAfter(acme.at(url))).status).to.equal(201);
    expect(await isOwn('acme')).to.equal(true);
    const expired = await acme.at(url).get(`/api/v1/Changes?after=${cursor}`);
    expect(expired.status).to.equal(410);
    expect((await globex.at(url).get('/api/v1/EntityStatus')).status).to.equal(200);
  });

  it('a connection that was opened ahead, while the server took no writes, writes nothing in the former era', async () => {
    const cursor = await comeFromElsewhere('globex', globex);

    await takesWrites(false);
    const { url } = await servers.world.startAnotherServer();
    expect((await globex.at(url).post(path, 'no JSON')).status).to.equal(400);
    await eventually(async () => {
      const sessions = await onTenant(
        'globex',
        `select from pg_stat_activity
          where datname = current_database() and usename = datname and state = 'idle'
            and query ~ 'enter_cluster|default_transaction_read_only'`,
      );
      return sessions.length > 0;
    });
    await takesWrites(true);

    expect((await createAfter(globex.at(url))).status).to.equal(201);
    expect(await isOwn('globex')).to.equal(true);
    const [latest] = await onTenant<{ isPresent: boolean }>(
      'globex',
      `select feed_era = (select i.feed_era from tenant_identity i) as "isPresent"
         from audit_log order by id desc limit 1`,
    );
    expect(latest?.isPresent).to.equal(true);
    const expired = await globex.at(url).get(`/api/v1/Changes?after=${cursor}`);
    expect(expired.status).to.equal(410);
    expect((await acme.at(url).get(path)).status).to.equal(200);
  });
});
