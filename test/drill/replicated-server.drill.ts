import { expect } from 'chai';
import { databaseUrl, serverAddressUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { ensureTemplate } from '../../src/operator/schema/template.ts';
import { type Receiver, startReceiver } from '../sales/webhooks/receiver.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { runCommand } from '../support/run-command.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
type Prefixed = { name: string; prefix: string };

const settings = ['max_connections=50', 'fsync=off'];
/** Transaction ids that the older cluster has used, and the younger one has not. */
const usedIds = 20_000;

/**
 * The upgrade of a server by logical replication: the subscriber has a counter of its own, which
 * begins at a few hundred.
 */
describe('drill: tenants that logical replication brings to a younger cluster', () => {
  let world: World;
  let receiver: Receiver;
  let older: OwnServer;
  let younger: OwnServer;
  let admin: Client;
  let globex: Client;

  before(async () => {
    receiver = await startReceiver();
    [world, older, younger] = await Promise.all([
      createWorld({ ACQUIRE_TIMEOUT_MS: '9000', WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }),
      startOwnServer('older', [...settings, 'wal_level=logical'], { isNew: true }),
      startOwnServer('younger', [...settings, 'wal_level=logical'], { isNew: true }),
    ]);
    [admin, globex] = [await world.login(world.acme), await world.login(world.globex)];
    await run('server', 'add', 'older');
    await useIds(usedIds);
    for (const slug of ['acme', 'globex']) {
      await run('move', slug, '--to', 'older', '--pause', '60');
    }
  });
  after(async () => {
    await world.close();
    await Promise.all([older.close(), younger.close(), receiver.close()]);
  });

  const run = async (...words: string[]): Promise<string> => {
    const { code, stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      words,
      world.environment,
      older.url,
    );
    expect(code, stderr + stdout).to.equal(0);
    return stdout;
  };
  const useIds = (count: number) =>
    withConnection(older.url, client =>
      client.query(
        `do $$ begin for n in 1..${count} loop perform pg_current_xact_id(); commit; end loop; end $$`,
      ),
    );
  const now = async (client: Client): Promise<string> =>
    (await client.get('/api/v1/Changes?after=now')).headers.get('next-cursor') ?? '';
  const keys = () => receiver.at('/hook').map(({ body }) => body.data.Key);
  const gaps = () => receiver.at('/hook').filter(({ body }) => body.type === 'webhook.gap');

  it('no tenant is served while a subscription writes, cursors get 410 afterwards, a webhook gets one gap and no earlier change again', async () => {
    expect(
      (
        await admin.post('/api/v1/Webhooks', {
          Url: receiver.url('/hook'),
          Resources: ['EntityStatus'],
        })
      ).status,
    ).to.equal(201);
    const { body: first } = await admin.post(path, { Title: 'first' });
    await eventually(() => keys().includes(String(first.Id)));
    expect((await globex.post(path, { Title: 'of globex' })).status).to.equal(201);
    const [former, other] = [await now(admin), await now(globex)];

    await replicate();
    await pointTo(younger.url);
    const { url, service } = await world.startAnotherServer();
    expect((await admin.at(url).get(path)).status).to.equal(503);
    expect((await globex.at(url).get(path)).status).to.equal(503);
    const findings = async (): Promise<string[]> => {
      const { stdout } = await runCommand(
        'scripts/tenant.ts',
        ['doctor', '--json'],
        world.environment,
      );
      return JSON.parse(stdout)
        .findings.filter(({ tenant }: { tenant: string | null }) => tenant !== null)
        .map(({ check, tenant }: { check: string; tenant: string }) => `${tenant} ${check}`);
    };
    const found = await findings();
    for (const check of ['replicated_database', 'rows_from_future', 'sequence_behind']) {
      expect(found).to.include(`acme ${check}`).and.to.include(`globex ${check}`);
    }
    await service.stop();

    await endReplication();
    const { url: later } = await world.startAnotherServer();
    [admin, globex] = [admin.at(later), globex.at(later)];
    await eventually(async () => (await admin.get(path)).status === 200);
    expect((await admin.get(`/api/v1/Changes?after=${former}`)).status).to.equal(410);
    expect((await globex.get(`/api/v1/Changes?after=${other}`)).status).to.equal(410);

    const cursor = await now(admin);
    const { body: second } = await admin.post(path, { Title: 'second' });
    await eventually(() => keys().includes(String(second.Id)));
    await eventually(async () => {
      const { body } = await admin.get(`/api/v1/Changes?after=${cursor}`);
      return body.length === 1 && body[0].Key === String(second.Id);
    });
    expect(gaps()).to.have.length(1);
    expect(keys().filter(key => key === String(first.Id))).to.have.length(1);
    expect(await findings()).to.deep.equal([]);
  });

  const databases = async (): Promise<string[]> =>
    (await controlSql<{ name: string }>(world, 'select database_name as name from tenants')).map(
      ({ name }) => name,
    );

  /** Makes the databases and logins as they are, and lets subscriptions copy the rows. */
  async function replicate(): Promise<void> {
    const names = await databases();
    const [row] = await controlSql<Prefixed>(
      world,
      `select name, prefix from servers where name = 'older'`,
    );
    await withConnection(younger.url, async admin => {
      const template = await ensureTemplate(admin, row!, younger.url);
      for (const name of names) {
        await admin.query(`create database "${name}" template "${template}"`);
        const { rows } = await withConnection(older.url, client =>
          client.query<{ verifier: string }>(
            'select rolpassword as verifier from pg_authid where rolname = $1',
            [name],
          ),
        );
        await admin.query(
          `create role "${name}" login password '${rows[0]?.verifier}';
           grant "${row?.prefix}_tenant" to "${name}";
           revoke all on database "${name}" from public;
           grant connect on database "${name}" to "${name}"`,
        );
      }
    });

    for (const name of names) {
      await withConnection(databaseUrl(older.url, name), client =>
        client.query('create publication everything for all tables'),
      );
      await withConnection(databaseUrl(younger.url, name), async client => {
        const { rows } = await client.query<{ tables: string }>(
          `select string_agg(format('%I', relname), ', ') as tables from pg_class
            where relnamespace = 'public'::regnamespace and relkind = 'r'`,
        );
        await client.query('set session_replication_role = replica');
        await client.query(`truncate ${rows[0]?.tables}`);
        await client.query(
          `create subscription "of_${name}" connection '${databaseUrl(older.url, name)}' publication everything`,
        );
        await eventually(async () => {
          const left = await client.query(
            `select from pg_subscription_rel where srsubstate <> 'r'`,
          );
          return left.rowCount === 0;
        }, 60_000);
      });
    }
  }

  /** Sets the sequences, too: before, a webhook cannot record what it has sent. */
  async function endReplication(): Promise<void> {
    for (const name of await databases()) {
      await withConnection(databaseUrl(younger.url, name), async client => {
        await client.query(`drop subscription "of_${name}"`);
        await client.query('select setval(name, value) from late_sequences()');
      });
    }
  }

  /** Lets the name of the older server lead to another one. */
  async function pointTo(url: string): Promise<void> {
    await world.service.stop();
    const sealed = world.installation.secrets.seal(url, 'server_url:older');
    await controlSql(world, `update servers set admin_url = ?, address = ? where name = 'older'`, [
      sealed,
      serverAddressUrl(url),
    ]);
  }
});
