import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { use } from '../../support/use.ts';

const path = '/api/v1/OrderStatuses';

describe('the feed of changes on a server that takes no writes for a time', () => {
  const servers = use(() => TwoServers.start({}));

  const onTenant = async <Row extends object>(text: string): Promise<Row[]> =>
    withConnection(await servers.currentUrl(), async client => {
      await client.query('set transaction_read_only = off');
      return (await client.query<Row>(text)).rows;
    });
  const isOwn = async () => {
    const [found] = await onTenant<{ isOwn: boolean }>(
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

  it('open connections begin the new era before they write, once the server takes writes', async () => {
    const { world } = servers;
    const [admin, globex] = [await world.login(world.acme), await world.login(world.globex)];
    await servers.move('acme', '--to', 'second');
    expect((await admin.post(path, { Name: 'before' })).status).to.equal(201);
    const cursor = (await admin.get('/api/v1/Changes?after=now')).headers.get('next-cursor');
    await world.service.stop();
    await onTenant(
      `set session_replication_role = replica;
       update audit_log set feed_xid = (feed_xid::text::bigint + 3000000)::text::xid8;
       update tenant_identity set system_identifier = system_identifier + 1`,
    );

    await takesWrites(false);
    const { url } = await world.startAnotherServer();
    for (let count = 0; count < 3; count++) {
      expect((await admin.at(url).get(path)).status).to.equal(200);
    }
    expect(await isOwn()).to.equal(false);
    await takesWrites(true);

    const { status } = await eventually(async () => {
      const response = await admin.at(url).post(path, { Name: 'after' });
      return response.status !== 503 && response;
    });
    expect(status).to.equal(201);
    expect(await isOwn()).to.equal(true);
    const expired = await admin.at(url).get(`/api/v1/Changes?after=${cursor}`);
    expect(expired.status).to.equal(410);
    expect((await globex.at(url).get('/api/v1/EntityStatus')).status).to.equal(200);
  });
});
