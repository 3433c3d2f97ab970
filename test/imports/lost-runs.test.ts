import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { createImportQueue } from '../../src/imports/import-queue.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { controlSql, sql, type TestTenant, useLogin, useWorld } from '../support/world.ts';

const csv = { 'Content-Type': 'text/csv' };
/** The advisory lock under which a tenant runs one import at a time. */
const importLock = 727_111;

describe('imports whose process or queue entry is lost', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  const control = (text: string, values: unknown[] = []) => controlSql<{ id: string }>(world, text, values);

  const ended = (path: string) =>
    eventually(async () => {
      const { body } = await admin.get(path);
      return ['done', 'rejected'].includes(body.State) && body;
    });

  /** Keeps the imports of acme from running during the work. */
  const whileLocked = <T>(work: () => Promise<T>): Promise<T> =>
    withConnection(world.acme.adminUrl, async client => {
      await client.query('select pg_advisory_lock($1)', [importLock]);
      return work(); // the end of the connection unlocks
    });

  /** Adds an entry of an import as a process leaves it that was killed while it ran it. */
  const leave = (tenant: TestTenant, importId: number, lostRuns: number) =>
    control(
      `insert into unfinished_imports (tenant_id, import_id, arrived_at, holder, leased_until, lost_runs)
       values (?, ?, now(), gen_random_uuid(), now() - interval '1 second', ?)`,
      [tenant.id, importId, lostRuns],
    );

  /** Sends a file while imports of acme cannot run, and then removes its entry of the queue. */
  async function sendUnlisted(sender: Client, file: string): Promise<string> {
    const { headers } = await sender.post('/api/v1/Imports?resource=Currency', file, csv);
    await eventually(async () => {
      await control('delete from unfinished_imports where holder is null and arrived_at is not null');
      return (await control('select from unfinished_imports')).length === 0;
    });
    return headers.get('location') ?? '';
  }

  it('an import that the control database does not list ends with the session of its sender, also when it is polled', async () => {
    const sender = await world.loginAs(world.acme, { permissions: ['settings.write'] });
    const location = await whileLocked(async () => {
      const path = await sendUnlisted(sender, 'Code,Name\nLLL,Late\n');
      expect((await sender.post('/api/v1/auth/logout', { refreshToken: sender.tokens?.refreshToken })).status).to.equal(
        204,
      );
      return path;
    });
    expect(await ended(location)).to.deep.include({
      State: 'rejected',
      Errors: [{ Line: 1, Field: '', Code: 'forbidden', Reason: 'the session in which the file was sent has ended' }],
    });
    expect(await sql(world.acme, `select from currencies where code = 'LLL'`)).to.have.length(0);
    const kept = await whileLocked(() => sendUnlisted(admin, 'Code,Name\nKKK,Kept\n'));
    expect(await ended(kept), 'with a session that has not ended').to.include({ State: 'done', Created: 1 });
  });

  it('an import is repeated after one killed process, and rejected with that reason after two', async () => {
    for (const [lostRuns, code, expected] of [
      [0, 'AAA', { State: 'done', Created: 1, Errors: [] }],
      [
        1,
        'BBB',
        {
          State: 'rejected',
          Created: 0,
          Errors: [
            {
              Line: 1,
              Field: '',
              Code: 'internal_error',
              Reason: 'the service ended twice while it ran the import; divide the file and send the parts',
            },
          ],
        },
      ],
    ] as const) {
      const location = await whileLocked(async () => {
        const path = await sendUnlisted(admin, `Code,Name\n${code},Left\n`);
        await leave(world.acme, Number(path.split('/').at(-1)), lostRuns);
        return path;
      });
      expect(await ended(location)).to.deep.include(expected);
    }
    expect(await sql(world.acme, `select from currencies where code = 'BBB'`)).to.have.length(0);
  });

  it('an import that a killed process was running is leased by a process that runs no other, and newer ones wait', async () => {
    await world.service.stop();
    await control('delete from unfinished_imports');
    await leave(world.acme, 901, 0);
    await leave(world.globex, 902, 0);
    await control('update unfinished_imports set holder = null where import_id = 902');
    const [first, second] = [randomUUID(), randomUUID()].map(holder => createImportQueue(world.control, holder));
    expect(await first?.lease(1), 'while it runs another').to.equal(undefined);
    const leased = await first?.lease(0);
    expect(leased).to.include({ importId: 901, lostRuns: 1 });
    expect(await second?.lease(3), 'which was never lost').to.include({ importId: 902, lostRuns: 0 });
    if (leased) await first?.postpone(leased, 0);
    expect(await second?.lease(0), 'an orderly end does not count').to.include({ importId: 901, lostRuns: 1 });
  });
});
