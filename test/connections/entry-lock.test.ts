import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { EntryLock } from '../../src/control/entry-lock.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { postgresUrl } from '../support/test-server.ts';
import { useWorld } from '../support/world.ts';

const atOnce = 2;

describe('connections of processes that start or end at the same moment', () => {
  const world = useWorld();
  /** Without the rights of a superuser, to whom no limit applies. */
  const login = { user: `entry_${randomBytes(4).toString('hex')}`, password: randomBytes(12).toString('base64url') };
  let url: string;

  before(async () => {
    await world.service.stop();
    url = databaseUrl(postgresUrl(), String(world.control.config.get('dbName')), login);
    await sql(`create role ${login.user} login password '${login.password}' in role postgres connection limit 1`);
  });
  after(async () => {
    await sql(`drop role ${login.user}`);
  });

  const sql = (text: string) => withConnection(postgresUrl(), client => client.query(text));

  it('one process at a time has the entry lock, and the kernel releases that of a killed process', async () => {
    const locks = Array.from({ length: 20 }, () => new EntryLock(url));
    let [holders, most] = [0, 0];
    await Promise.all(
      locks.map(async lock => {
        expect(await lock.acquire()).to.equal(true);
        most = Math.max(most, ++holders);
        await new Promise(resolve => setImmediate(resolve));
        holders--;
        lock.release();
      }),
    );
    expect(most).to.equal(1);

    const holder = startScript(fileURLToPath(new URL('../support/hold-entry-lock.ts', import.meta.url)), [url], {});
    await eventually(() => holder.output.stdout.includes('taken'), 60_000);
    const [next, other] = [new EntryLock(url), new EntryLock(databaseUrl(url, 'another_control_database'))];
    expect([await next.acquire(0), await other.acquire(0)]).to.deep.equal([false, true]);
    other.release();
    holder.process.kill('SIGKILL');
    expect(await next.acquire()).to.equal(true);
    next.release();
    await holder.ended;
  });

  it('commands outside of the budget at the same moment, one of which repeats what it shows, have one connection together', async () => {
    const settings = { ...world.environment, DATABASE_URL: url };
    const show = () => runScript('scripts/tenant.ts', ['show', 'acme'], settings);
    const watching = startScript('scripts/tenant.ts', ['status', '--watch', '--json'], settings);
    try {
      await eventually(() => watching.output.stdout.length > 0, 60_000);
      for (const { code, stderr } of await Promise.all(Array.from({ length: atOnce }, show)))
        expect([code, stderr]).to.deep.equal([0, '']);
      const seen = watching.output.stdout.length;
      await eventually(() => watching.output.stdout.length > seen, 60_000);
    } finally {
      watching.process.kill('SIGINT');
    }
    expect((await watching.ended).stderr).to.equal('');
  });
});
