import { expect } from 'chai';
import type { DatabaseStep } from '../../../src/operator/databases/database-protocol.ts';
import { closedStamp } from '../../../src/operator/databases/database-stamp.ts';
import { moveTenant } from '../../../src/operator/databases/move-tenant.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { MovedWrites } from './moved-writes.ts';

/** One while the tenant is served, and one behind the fence. The drill of moves kills runs at every step. */
const steps = ['fill', 'exchange'] as const;

describe('moves that fail', () => {
  let servers: TwoServers;
  let writes: MovedWrites;

  before(async () => {
    servers = await TwoServers.start({ ACQUIRE_TIMEOUT_MS: '9000' });
    writes = await MovedWrites.start(servers);
  });
  after(() => servers.close());

  /** Moves a tenant; the run fails at a step, if one is named. */
  const move = (to: string, failsAt?: DatabaseStep) =>
    moveTenant(
      servers.world.installation,
      'acme',
      { keepSeconds: 3_600, maxPauseMs: 60_000, to },
      {
        onStep: (_, step) => {
          if (step === failsAt) throw new Error('the run fails here');
        },
      },
    ).catch((error: Error) => error.message);

  it('a move that fails leaves the tenant in its database, and nothing of the new one', async () => {
    const written: string[] = [];
    for (const step of steps) {
      const { result, titles } = await writes.during(() => move('second', step));
      expect(result, step).to.equal('the run fails here');
      written.push(...titles);
      await writes.expectAll(written);
      expect(await servers.states(), step).to.deep.equal(['default current']);
      expect(await servers.namesOn('second'), step).to.deep.equal([]);
    }
    const { stdout } = await servers.run(['doctor', '--json']);
    const findings = JSON.parse(stdout).findings.filter(({ tenant }: { tenant: string }) => tenant === 'acme');
    expect(findings).to.deep.equal([]);
    const result = await move('second');
    const { newDatabase } = typeof result === 'string' ? expect.fail(result) : result;
    expect(await servers.namesOn('second')).to.deep.equal([newDatabase]);
    await writes.expectAll(written);
    await servers.runWell(['move', 'settle', 'acme', '--yes']);
    expect(await servers.states()).to.deep.equal(['second current']);
    expect((await servers.run(['move', 'acme', '--back'])).stderr).to.include('has no move that can be reversed');
  });

  it('a run that fails after the switch opens the new database, and the next run does so if the first one was killed', async () => {
    const to = await servers.otherServer();
    const { result, titles } = await writes.during(() => move(to, 'open current'));
    expect(result).to.include({ slug: 'acme', to });
    expect(result).to.have.property('pauseMs').within(1, 60_000);
    expect((await servers.databases()).map(({ error }) => error)).to.deep.equal([null, null]);
    await writes.expectAll(titles);

    // What a run leaves that is killed before it opens the database.
    const { acme, control } = servers.world;
    await withConnection(await servers.currentUrl(), client =>
      client.query('update tenant_identity set guid = $1', [closedStamp(acme.guid)]),
    );
    await control.em.execute(
      `insert into tenant_fences (tenant_guid, id, closed, to_server_id)
       select guid, gen_random_uuid(), true, server_id from tenants where guid = ?`,
      [acme.guid],
    );
    const served = JSON.parse(await servers.runWell(['databases', 'prune', 'acme', '--json']));
    expect(served).to.have.length(1);
    expect(served[0]).to.include({ slug: 'acme', server: to, action: 'serve' });
    await writes.expectAll(titles);
  });
});
