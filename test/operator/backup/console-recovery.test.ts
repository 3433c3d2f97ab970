import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { makeIdentity } from '../../../src/operator/backup/archive/identities.ts';
import { recordProof } from '../../../src/operator/backup/archive-rows.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import { writeRecorded } from '../../support/recorded-archive.ts';
import { useFolder } from '../../support/use.ts';
import { controlSql, useWorld } from '../../support/world.ts';
import { type OpenConsole, openConsole } from '../console/console-client.ts';

describe('console: recovery by the list of archives', () => {
  const world = useWorld();
  const folder = useFolder();
  let environment: Record<string, string>;
  let opened: OpenConsole;
  let archive: string;

  before(async () => {
    const target = await openTarget(readConfig({ BACKUP_TARGET: folder }).backup);
    await target.mark();
    const { controlUrl } = world.installation;
    await controlSql(world, 'update installation set backup_target = ?', [target.description]);
    for (const day of [1, 2]) {
      archive = await writeRecorded(controlUrl, target, {
        tenant: world.acme.guid,
        time: new Date(`2026-01-0${day}T10:00:00Z`),
      });
    }
    await withConnection(controlUrl, control =>
      recordProof(control, target, archive, null, 'proved'),
    );
    await controlSql(world, `update archives set covered_at = '2026-01-02T12:00Z' where name = ?`, [
      archive,
    ]);
    environment = { ...world.environment, BACKUP_TARGET: folder };
    opened = await openConsole(environment, ['--no-browser']);
  });
  after(async () => {
    expect(await opened.stop()).to.equal(0);
  });

  it('the page of the fleet shows each tenant as the last run saw it, those without an archive first', async () => {
    const rows = (await opened.get('/recovery')).text.replace(/<[^>]+>/g, ' ').replace(/\s+/g, ' ');

    expect(rows).to.match(/Without an archive (\S+ )?1 /);
    expect(rows).to.match(/globex .*missing .* acme .*proved/);
    expect((await opened.get('/')).text).to.include('Tenants without an archive: 1 of 2');
    expect((await opened.get('/tenants/acme')).text).to.include('archived');
  });

  it('the page of a tenant lists its archives in the target, and a moment leads to the archive before it', async () => {
    const { text } = await opened.get('/recovery/acme');
    expect(text).to.include(`archive=${encodeURIComponent(archive)}`);

    const textAt = async (time: string) =>
      (await opened.get(`/recovery/acme?at=2026-01-${time}`)).text;
    expect(await textAt('02T11:00')).to.include('has exactly its data');
    expect(await textAt('02T13:00'))
      .to.include('The last archive before it')
      .and.include('A server that you have recovered to that moment');
    expect(await textAt('01T11:00')).to.include('The last archive before it');
    expect(await textAt('01T09:00')).to.include('No archive is as old');
  });

  it('an operation that opens an archive is a plan and a command for the recovery host, and runs only where an identity is', async () => {
    const elsewhere =
      'This host opens no archive (BACKUP_IDENTITY_FILE is not set here): copy the command below';
    const chosen = { slug: 'acme', archive, step: 'run' };
    const plans = {
      '/operations/restore': [
        chosen,
        `acme would get data beside its present data, from ${archive}`,
      ],
      '/operations/clone': [{ ...chosen, newSlug: 'acme-old' }, 'acme-old would be added on'],
    } as const;

    for (const [path, [fields, plan]] of Object.entries(plans)) {
      const { text } = await opened.ended((await opened.submit(path, fields)).path);

      expect(text).to.include(plan).and.include(elsewhere).and.include(`--archive=${archive}`);
      expect(text, 'it is not done here').to.not.include('id="perform"');
    }
    const drill = await opened.submit('/operations/backup/drill', { step: 'run' });

    expect(drill.text).to.include(elsewhere).and.include('bin/backoffice backup drill');

    const { identity } = await makeIdentity();
    const identityFile = `${folder}.identity`;
    await writeFile(identityFile, `${identity}\n`, { mode: 0o600 });
    const onRecoveryHost = await openConsole(
      { ...environment, BACKUP_IDENTITY_FILE: identityFile },
      ['--no-browser'],
    );
    try {
      const { path } = await onRecoveryHost.submit('/operations/restore', {
        ...chosen,
        step: 'plan',
      });
      expect((await onRecoveryHost.ended(path)).text)
        .to.include('id="perform"')
        .and.not.include(elsewhere);
      const run = await onRecoveryHost.submit('/operations/restore', chosen);
      expect((await onRecoveryHost.ended(run.path)).text).to.include('The archive');
    } finally {
      expect(await onRecoveryHost.stop()).to.equal(0);
      await rm(identityFile);
    }
  });

  it('an object that no run has recorded stands apart, is no archive of a moment, and can be chosen in no form', async () => {
    const stray = archive.replace('20260102T100000.000Z', '20260103T100000.000Z');
    await writeFile(join(folder, stray), 'of somebody else');

    try {
      const { text } = await opened.get('/recovery/acme');
      expect(text)
        .to.match(/Objects that do not count.*unrecorded/s)
        .and.include(stray);
      expect(text).not.to.include(`archive=${encodeURIComponent(stray)}`);

      const later = (await opened.get('/recovery/acme?at=2026-01-04T11:00')).text;
      expect(later).to.include('The last archive before it is of 2026-01-02');
      expect((await opened.get('/operations/restore?slug=acme')).text).not.to.include(stray);
    } finally {
      await rm(join(folder, stray));
    }
  });

  it('the page says that a target is away, and shows everything else', async () => {
    await rename(folder, `${folder}-away`);
    try {
      const { status, text } = await opened.get('/recovery/acme');
      expect(status).to.equal(200);
      expect(text).to.include(
        'The target cannot be listed here: The folder of BACKUP_TARGET does not exist',
      );
    } finally {
      await rename(`${folder}-away`, folder);
    }
  });
});
