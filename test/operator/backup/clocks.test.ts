import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../../src/operator/backup/target/target.ts';
import { ArchiveFacts, archivesIn } from '../../support/archive-facts.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('the clocks by which archives are old', () => {
  const server = use(createDedicatedServer);
  const folder = useServerFolder('archives');
  const facts = new ArchiveFacts(server);
  let environment: Record<string, string>;
  let target: Target;

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

  before(async () => {
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    environment = {
      ...server.environment,
      ...(await backupSettings(folder)),
      BACKUP_KEEP: 'all:90d',
    };
    target = await openTarget(readConfig(environment).backup);
    await backUp(environment);
  });
  beforeEach(async () => {
    await facts.write('acme');
    await succeed(environment, 'tenant', ['backup', 'run', '--all']);
  });

  it('a clock of the control database that is a year ahead removes no archive, by a plan and by a prune', async () => {
    const before = await archivesIn(target);
    expect(before.length).to.be.above(3);
    await setAhead('1 year');

    const plan = await succeed(environment, 'tenant', ['backup', 'prune', '--dry-run']);
    const pruned = await succeed(environment, 'tenant', ['backup', 'prune']);
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

    await succeed(environment, 'tenant', ['backup', 'prune']);

    expect(await archivesIn(target)).to.have.length(3);
  });
});
