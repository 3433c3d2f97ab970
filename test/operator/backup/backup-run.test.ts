import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import { runCommand } from '../../support/run-command.ts';
import { backUp } from '../../support/succeed.ts';
import { useFolder } from '../../support/use.ts';
import { sql, useWorld } from '../../support/world.ts';

describe('backup run', () => {
  const world = useWorld();
  const folder = useFolder();
  let environment: Record<string, string>;

  const run = (settings: Record<string, string> = environment) =>
    runCommand('scripts/tenant.ts', ['backup', 'run', '--all', '--concurrency', '1'], settings);
  const archivesOf = async (guid: string): Promise<string[]> =>
    (await readdir(folder, { recursive: true })).filter(
      name => name.includes(guid) && name.endsWith('.age'),
    );

  before(async () => {
    environment = { ...world.environment, ...(await backupSettings(folder)) };
    await backUp(environment);
  });

  it('backup run makes files that its login alone can read', async () => {
    const [archive = ''] = await archivesOf(world.acme.guid);

    for (const path of [archive, join(archive, '..'), join(archive, '..', '..')]) {
      expect((await stat(join(folder, path))).mode & 0o077, path).to.equal(0);
    }
  });

  it('a tenant with a table that its archive would not have whole fails, without a file, and backup run names it below all others, before the totals', async () => {
    await sql(world.acme, 'create table parts (id integer) partition by range (id)');
    await sql(world.globex, `insert into entity_statuses (title) values ('New')`);
    const before = await archivesOf(world.acme.guid);

    const { code, stdout } = await run();

    await sql(world.acme, 'drop table parts');
    expect(code).to.equal(1);
    const lines = stdout.trim().split('\n');
    expect(lines.map(line => line.replace(/:.*/, ''))).to.deep.equal([
      'globex',
      '(control database)',
      'acme',
      `folder ${folder}`,
    ]);
    expect(stdout).to.match(/^acme: .*parts is not an ordinary table/m);
    expect(await archivesOf(world.acme.guid)).to.deep.equal(before);
  });

  it('backup run says what to set when it has no target, one that cannot be written, or nobody to seal for', async () => {
    const { BACKUP_TARGET: _, ...withoutTarget } = environment;
    expect((await run(withoutTarget)).stderr).to.equal(
      'BACKUP_TARGET is not set: set it to a folder (/mnt/backup) or a bucket (s3://bucket/prefix).\n',
    );

    const { BACKUP_RECIPIENTS: __, ...withoutRecipients } = environment;
    expect((await run(withoutRecipients)).stderr).to.match(
      /^BACKUP_RECIPIENTS is not set, .*: bin\/backoffice backup keygen\n$/,
    );

    const wrong = await run({ ...environment, BACKUP_TARGET: join(folder, 'backup-target.txt') });
    expect(wrong.code).to.equal(1);
    expect(wrong.stderr).to.match(/^The folder of BACKUP_TARGET /);
  });
});
