import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { generateHybridIdentity, identityToRecipient } from 'age-encryption';
import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import { runCommand } from '../../support/run-command.ts';
import { backUp, succeed } from '../../support/succeed.ts';
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

  it('archives for a post-quantum recipient beside another one are opened by either identity', async () => {
    const identity = await generateHybridIdentity();
    const file = join(folder, 'post-quantum.txt');
    await writeFile(file, `# an identity\n${identity}\n`);
    const { BACKUP_RECIPIENTS: other, BACKUP_IDENTITY_FILE: otherFile } = environment;
    const both = {
      ...environment,
      BACKUP_RECIPIENTS: `${await identityToRecipient(identity)},${other}`,
    };

    const { code, stderr } = await run(both);

    expect(code, stderr).to.equal(0);
    for (const identityFile of [file, otherFile ?? '']) {
      const host = { ...both, BACKUP_IDENTITY_FILE: identityFile };
      await succeed(host, 'tenant', ['backup', 'verify']);
      await succeed(host, 'tenant', ['backup', 'drill', '--count', '1']);
    }
  });

  it('backup run names a recipient for which no archive can be sealed, before it archives anything', async () => {
    const recipient = environment.BACKUP_RECIPIENTS ?? '';
    const mistyped = `${recipient.slice(0, -1)}${recipient.endsWith('q') ? 'p' : 'q'}`;
    const ofPlugin = 'age1yubikey1qwt50d05nh5vutpdzmlg5wn80xq5negm4uj9ghv0snvdd3yysf5yw3rhl3t';
    const before = await archivesOf(world.acme.guid);

    for (const wrong of [mistyped, ofPlugin]) {
      const { code, stderr } = await run({
        ...environment,
        BACKUP_RECIPIENTS: `${recipient} ${wrong}`,
      });

      expect(code).to.equal(1);
      expect(stderr).to.match(/^BACKUP_RECIPIENTS has age1/);
      expect(stderr).to.include(`has ${wrong.slice(0, 20)}…, for which no archive can be sealed`);
    }
    expect(await archivesOf(world.acme.guid)).to.deep.equal(before);
  });

  it('backup run refuses more recipients than an archive can name and still be opened', async () => {
    const recipients = await Promise.all(
      Array.from({ length: 45 }, async () => identityToRecipient(await generateHybridIdentity())),
    );

    const { code, stderr } = await run({
      ...environment,
      BACKUP_RECIPIENTS: recipients.join(' '),
    });

    expect(code).to.equal(1);
    expect(stderr).to.match(/^BACKUP_RECIPIENTS has 45 recipients, .* Set fewer\.\n$/);
  });
});
