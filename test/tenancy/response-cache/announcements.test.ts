import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { type Installation, openInstallation } from '../../../src/control/installation.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { outcomeUnknownDetail } from '../../../src/lib/problems.ts';
import { type RunningServer, startServer } from '../../../src/service/server.ts';
import type { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { type SilentProxy, startSilentProxy } from '../../support/silent-proxy.ts';
import { sql, useWorld } from '../../support/world.ts';

const statuses = '/api/v1/EntityStatus';
const path = `${statuses}/3`;
const deadlineMs = 3_000;
/** The number of the lock that a commit waits for. */
const gate = 4712;

/**
 * The writer is a process that reaches PostgreSQL through a proxy; the reader is another
 * process, which has the record in memory for 50 s at least.
 */
describe('announcements of changes', () => {
  const world = useWorld();
  let proxy: SilentProxy;
  let installation: Installation;
  let service: RunningServer;
  let writer: Client;
  let reader: Client;
  let controlName: string;

  beforeEach(async () => {
    const { controlUrl } = world.installation;
    controlName = new URL(controlUrl).pathname.slice(1);
    proxy = await startSilentProxy();
    const config = readConfig({ ...world.environment, DATABASE_URL: proxy.through(controlUrl) });
    installation = await openInstallation(config);
    const { log, passwords } = world;
    service = await startServer({ config, installation, log, passwords, deadlineMs });

    reader = await world.login(world.acme);
    writer = reader.at(`http://127.0.0.1:${service.port}`);
  });
  afterEach(async () => {
    await proxy.close();
    await service.stop();
    await installation.close();
  });

  const rename = (title: string) => writer.put(path, { Title: title });
  const titleAt = async (client: Client) => (await client.get(path)).body.Title;
  const isRead = (title: string) =>
    eventually(async () => (await titleAt(reader)) === title, announcedMs);

  /** Gives the record this title, and lets the reader have it in memory. */
  async function cacheAs(title: string): Promise<void> {
    await eventually(async () => (await rename(title)).status === 200);
    await isRead(title);
    await titleAt(reader);
  }

  /**
   * Resolves when a change of the resource has been announced, too, before it could be
   * announced once more.
   */
  function afterAnnouncement<T>(request: () => Promise<T>): Promise<T> {
    return withConnection(world.installation.controlUrl, async listener => {
      let isAnnounced = false;
      listener.on('notification', ({ payload = '' }) => {
        isAnnounced ||= payload === `responses:${world.acme.guid}/EntityStatus`;
      });
      await listener.query('listen control_changes');
      const result = await request();
      await eventually(() => isAnnounced, 9_000);
      return result;
    });
  }

  it('a change whose announcement hangs is responded to, and announced again until it is accepted', async () => {
    await cacheAs('announced');
    const announcement = proxy.hold(controlName, packet => packet.includes('responses:'));

    expect((await rename('hanging')).status).to.equal(200);

    expect(announcement.isHolding).to.equal(true);
    expect(await titleAt(writer)).to.equal('hanging');
    await isRead('hanging');
  });

  it('a change that is made just before its deadline, and whose announcement hangs, is not said to be repeatable', async () => {
    const created = await Promise.all(
      Array.from(
        { length: 8 },
        async (_, index) => (await writer.post(statuses, { Title: `before ${index}` })).body,
      ),
    );
    const ids: number[] = created.map(({ Id }) => Id);
    await sql(
      world.acme,
      `create function gate() returns trigger language plpgsql as $$ begin
         perform pg_advisory_xact_lock_shared(${gate}, new.id);
         return null;
       end $$;
       create trigger gate after update on entity_statuses for each row execute function gate()`,
    );
    proxy.hold(controlName, packet => packet.includes('responses:'));

    const responses = await withConnection(world.acme.adminUrl, async session => {
      for (const id of ids) await session.query('select pg_advisory_lock($1, $2)', [gate, id]);
      const startedAt = performance.now();
      const sent = ids.map(id => writer.put(`${statuses}/${id}`, { Title: 'after' }));
      for (const [index, id] of ids.entries()) {
        // 2.5 s before it, in which any machine makes the change, to 20 ms before it
        const earlierMs = 20 * 2 ** (ids.length - 1 - index);
        await sleep(Math.max(0, startedAt + deadlineMs - earlierMs - performance.now()));
        await session.query('select pg_advisory_unlock($1, $2)', [gate, id]);
      }
      return Promise.all(sent);
    });
    await sql(world.acme, 'drop function gate() cascade');

    const made = await sql<{ id: number }>(
      world.acme,
      `select id from entity_statuses where title = 'after'`,
    );
    const repeatable = responses.flatMap(({ headers }, index) =>
      headers.has('retry-after') ? [ids[index]] : [],
    );
    expect(made.length, 'changes that were made').to.be.above(0);
    expect(made.map(({ id }) => id).filter(id => repeatable.includes(id))).to.deep.equal([]);
  });

  it('a change whose commit is made but not confirmed is announced', async () => {
    await cacheAs('confirmed');
    proxy.silence(world.acme.database, packet => packet.includes('unconfirmed'));

    const { status, body } = await afterAnnouncement(() => rename('unconfirmed'));

    expect(status).to.equal(503);
    expect(body.detail).to.equal(outcomeUnknownDetail);
    await isRead('unconfirmed');
  });

  it('a change whose commit takes effect only after its request has failed is announced once more', async () => {
    await cacheAs('early');
    await sql(
      world.acme,
      `create function gate() returns trigger language plpgsql as $$ begin
         perform pg_advisory_xact_lock_shared(${gate});
         return null;
       end $$;
       create constraint trigger gate after update on entity_statuses deferrable initially deferred
         for each row execute function gate()`,
    );

    await withConnection(world.acme.adminUrl, async session => {
      await session.query(`select pg_advisory_lock(${gate})`);
      const { status, body } = await afterAnnouncement(() => rename('late'));
      expect(status).to.equal(503);
      expect(body.detail).to.equal(outcomeUnknownDetail);
      // Enough for the reader to receive the announcement, too, and to have the record in
      // memory again.
      for (let n = 0; n < 50; n++) expect(await titleAt(reader)).to.equal('early');
      await session.query(`select pg_advisory_unlock(${gate})`);
    });

    await isRead('late');
    await sql(world.acme, 'drop function gate() cascade');
  });
});
