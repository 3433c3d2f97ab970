import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { execPath } from 'node:process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { type Installation, openInstallation } from '../../../src/control/installation.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { waitWithBackupLock, withBackupLock } from '../../../src/operator/backup/backup-lock.ts';
import { pruneArchives } from '../../../src/operator/backup/prune-archives.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../../src/operator/backup/target/target.ts';
import { initTarget } from '../../../src/operator/backup/writer.ts';
import { ArchiveFacts, archivesIn } from '../../support/archive-facts.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { runSmall } from '../../support/small-archives.ts';
import { use, useFolder } from '../../support/use.ts';

/** Of each database the newest archive is kept. */
const keepNewest = '1m';
const places = ['folder', 'bucket'] as const;
const script = fileURLToPath(new URL('../../support/killed-backup.ts', import.meta.url));

describe('commands of backups that are killed between two steps', () => {
  const server = use(createDedicatedServer);
  const s3 = use(() => startS3Server('backups'));
  const folder = useFolder();
  const keep = readConfig({ BACKUP_KEEP: keepNewest }).backup.keep;
  const facts = new ArchiveFacts(server);
  let installation: Installation;

  const settingsOf = (place: (typeof places)[number]): Record<string, string> => ({
    ...server.environment,
    ...(place === 'folder' ? { BACKUP_TARGET: folder } : s3.environment),
    BACKUP_KEEP: keepNewest,
  });

  /** Runs a command that kills itself. */
  async function kill(place: (typeof places)[number], ...args: string[]): Promise<void> {
    const child = spawn(execPath, [script, ...args], {
      env: { ...process.env, ...settingsOf(place) },
      stdio: 'inherit',
    });
    const [, signal] = await once(child, 'exit');
    expect(signal, args.join(' ')).to.equal('SIGKILL');

    // PostgreSQL frees the lock of a killed command when it notices the end of its connection.
    await waitWithBackupLock(installation.controlUrl, 'archives', async () => {}, {
      maxWaitMs: 60_000,
    });
  }

  /** Every complete archive is there, and the target has no other object of an archive. */
  async function expectListed(target: Target): Promise<void> {
    expect(await archivesIn(target)).to.have.members(await facts.rowsOf('complete'));
    for (const state of ['writing', 'removing', 'unproved']) {
      expect(await facts.rowsOf(state), state).to.deep.equal([]);
    }
  }

  before(async () => {
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    installation = await openInstallation(readConfig(server.environment));
  });
  after(() => installation.close());

  for (const place of places) {
    describe(`in a ${place}`, () => {
      let target: Target;

      before(async () => {
        target = await openTarget(readConfig(settingsOf(place)).backup);
        await withBackupLock(installation.controlUrl, 'archives', control =>
          initTarget(control, target, { takeOver: true, isDryRun: false }),
        );
        await runSmall(installation, target, { keep });
      });

      for (const moment of ['before', 'after']) {
        it(`a run that is killed ${moment} the object of a tenant is written leaves a row that says so, and the next run has archived everybody once`, async () => {
          const guid = await facts.guidOf('acme');
          await facts.write('acme');
          await kill(place, 'run', moment, 'write', `tenants/${guid}`);
          const [left = ''] = await facts.rowsOf('writing');
          expect(left).to.include(guid);
          expect((await archivesIn(target)).includes(left)).to.equal(moment === 'after');

          const { states } = await runSmall(installation, target, { keep });

          expect(states).to.include('acme: archived');
          expect(await archivesIn(target)).not.to.include(left);
          await expectListed(target);
        });

        it(`a run that is killed ${moment} the object of the control database is written is completed by the next one`, async () => {
          await kill(place, 'run', moment, 'write', '/control/');

          await runSmall(installation, target, { keep });

          await expectListed(target);
        });

        it(`a prune that is killed ${moment} an object is removed is completed by the next one, and keeps the newest archive of each database`, async () => {
          for (const slug of ['acme', 'globex']) await facts.write(slug);
          await runSmall(installation, target);
          const newest = await facts.rowsOf('complete');
          await kill(place, 'prune', moment, 'remove', '');
          expect(await facts.rowsOf('removing')).not.to.deep.equal([]);

          const { notRemoved } = await pruneArchives(installation, target, keep);

          expect(notRemoved).to.deep.equal([]);
          await expectListed(target);
          expect(await facts.rowsOf('complete')).to.have.length(3);
          expect(newest).to.include.members(await facts.rowsOf('complete'));
        });

        it(`a purge after a run that was killed ${moment} it wrote leaves nothing of its tenant, also when it is killed itself`, async () => {
          const slug = `gone-${place}-${moment}`;
          await server.provision(slug);
          const guid = await facts.guidOf(slug);
          await kill(place, 'run', moment, 'write', `tenants/${guid}`);
          const settings = settingsOf(place);
          await runCommand('scripts/tenant.ts', ['delete', slug, '--yes'], settings);
          await runCommand(
            'scripts/tenant.ts',
            ['purge', slug, '--yes', '--keep-archives'],
            settings,
          );
          await server.control(
            `update purged_tenants set archives = 'left' where slug = '${slug}'`,
          );
          await kill(place, `purge=${guid}`, moment, 'erase', guid);

          await runSmall(installation, target, { keep });

          expect((await archivesIn(target)).filter(name => name.includes(guid))).to.deep.equal([]);
          await expectListed(target);
        });
      }
    });
  }

  it('a target that is changed gets an archive of everybody once, and the former one has its own again when it is set back', async () => {
    const [first, second] = await Promise.all(
      places.map(place => openTarget(readConfig(settingsOf(place)).backup)),
    );
    if (!first || !second) throw new Error('there are two targets');
    const init = (target: Target) =>
      withBackupLock(installation.controlUrl, 'archives', control =>
        initTarget(control, target, { takeOver: true, isDryRun: false }),
      );

    for (const target of [first, second]) {
      await init(target);
      await runSmall(installation, target);
    }
    const before = await facts.rowsOf('complete');
    await init(first);
    await facts.write('acme');
    expect((await runSmall(installation, first)).states).to.deep.equal([
      'acme: archived',
      'globex: unchanged',
      'null: archived',
    ]);

    await init(second);
    expect(await facts.rowsOf('complete')).to.have.members(before);
    const again = await runSmall(installation, second);
    expect(again.states).to.deep.equal(['acme: archived', 'globex: unchanged', 'null: archived']);
    expect(again.lost).to.deep.equal([]);
  });
});
