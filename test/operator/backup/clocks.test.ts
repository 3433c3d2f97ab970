import { expect } from 'chai';
import { archivesIn } from '../../support/archive-facts.ts';
import { useArchivedServer } from '../../support/archived-server.ts';
import { succeed } from '../../support/succeed.ts';

describe('the clocks by which archives are old', () => {
  const { server, target, facts, settings } = useArchivedServer({ BACKUP_KEEP: 'all:90d' });

  /** Puts the clock of the control database ahead; undefined: it is right again. */
  async function setAhead(interval: string | undefined): Promise<void> {
    await server.sql(
      interval === undefined
        ? `create or replace function pg_catalog.clock_timestamp() returns timestamptz
             volatile strict language internal as 'clock_timestamp'`
        : `create or replace function pg_catalog.clock_timestamp() returns timestamptz
             volatile language sql as $$select now() + interval '${interval}'$$`,
      'office',
    );
  }

  beforeEach(async () => {
    await facts.write('acme');
    await succeed(settings(), 'tenant', ['backup', 'run', '--all']);
  });

  it('a clock of the control database that is a year ahead removes no archive, by a plan and by a prune', async () => {
    const before = await archivesIn(target);
    expect(before.length).to.be.above(3);
    await setAhead('1 year');

    const plan = await succeed(settings(), 'tenant', ['backup', 'prune', '--dry-run']);
    const pruned = await succeed(settings(), 'tenant', ['backup', 'prune']);
    await setAhead(undefined);

    expect(plan).to.equal('Nothing would be removed.\n');
    expect(pruned).to.equal('0 archives removed.\n');
    expect(await archivesIn(target)).to.have.members(before);
  });

  it('archives that are old by every clock are removed', async () => {
    await server.control(
      `update archives set archived_at = archived_at - interval '91 days' where name not in (
         select distinct on (tenant_guid) name from archives order by tenant_guid, archived_at desc)`,
    );

    await succeed(settings(), 'tenant', ['backup', 'prune']);

    expect(await archivesIn(target)).to.have.length(3);
  });
});
