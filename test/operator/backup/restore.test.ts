import { randomBytes } from 'node:crypto';
import { copyFile, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { type AgeIdentity, makeIdentity } from '../../../src/operator/backup/archive/identities.ts';
import { isScratchName } from '../../../src/operator/backup/check/scratch-names.ts';
import { addByHand, readAddedByHand } from '../../support/added-by-hand.ts';
import { membersOf, sealBytes, tarOf } from '../../support/age-archives.ts';
import { startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { useOwnDrills } from '../../support/own-drills.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { documentOf, succeed } from '../../support/succeed.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { controlSql, sql, type TestTenant, useLogin, useWorld } from '../../support/world.ts';

describe('archives sealed with age', () => {
  useOwnDrills();
  const world = useWorld();
  const folder = useServerFolder('archives');
  const admin = useLogin(world, 'acme');
  /** The settings of the host that writes archives: it has recipients only. */
  let writer: Record<string, string>;
  /** The settings of the recovery host. */
  let recovery: Record<string, string>;
  let identity: AgeIdentity;

  const on = async (environment: Record<string, string>, ...args: string[]) =>
    documentOf(await runCommand('scripts/tenant.ts', [...args, '--json'], environment));
  const recover = (...args: string[]) => on(recovery, ...args);
  const archivesOf = async (slug: string): Promise<string[]> => {
    const { document } = await on(writer, 'backup', 'list', slug);
    return document.map(({ name }: { name: string }) => name);
  };
  const newestOf = async (slug: string): Promise<string> => (await archivesOf(slug))[0] ?? '';
  const lines = (text: string): Record<string, unknown>[] =>
    text
      .split('\n')
      .filter(Boolean)
      .map(line => JSON.parse(line));
  const databases = async (): Promise<string[]> => {
    const { document } = await recover('databases', 'acme');
    return document.map(({ state }: { state: string }) => state).sort();
  };
  const codes = async () =>
    (await admin.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' })).body.map(
      ({ Code }: { Code: string }) => Code,
    );
  /** Returns acme with the database that it has now. */
  const present = async (): Promise<TestTenant> => {
    const [{ database } = { database: '' }] = await controlSql<{ database: string }>(
      world,
      `select database_name as database from tenants where slug = 'acme'`,
    );
    const adminUrl = world.acme.adminUrl.replace(world.acme.database, database);
    return { ...world.acme, database, adminUrl };
  };

  before(async () => {
    identity = await makeIdentity();
    const identityFile = join(folder, '..', `${world.acme.database}.identity`);
    await writeFile(identityFile, `# of the test\n${identity.identity}\n`, { mode: 0o600 });
    writer = {
      ...world.environment,
      BACKUP_TARGET: folder,
      BACKUP_RECIPIENTS: identity.recipient,
    };
    recovery = { ...writer, BACKUP_IDENTITY_FILE: identityFile };

    await admin.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
    await admin.post('/api/v1/Currency', { Code: 'CHF', Name: 'Franc' });
    await sql(world.acme, addByHand);
    await sql(
      world.acme,
      'create schema reports; create table reports.totals as select 42 as total',
    );
    await succeed(writer, 'tenant', ['backup', 'init']);
    await succeed(writer, 'tenant', ['backup', 'run', '--all']);
  });

  it('the host that writes archives opens none, and its verification says how far it looks', async () => {
    const verified = await runCommand('scripts/tenant.ts', ['backup', 'verify'], writer);
    expect(verified.code, verified.stderr).to.equal(0);
    expect(verified.stdout).to.match(
      /^\d+ archives compared by size and SHA-256, not opened, 0 faulty\.\n$/,
    );

    for (const args of [
      ['backup', 'drill'],
      ['restore', 'acme', '--archive', 'latest'],
      ['clone', 'acme', 'acme-copy', '--archive', 'latest'],
    ]) {
      const { code, document } = await on(writer, ...args);
      expect(code, args.join(' ')).to.equal(1);
      expect(document.message, args.join(' ')).to.match(/^BACKUP_IDENTITY_FILE is not set/);
    }
  });

  it('a drill that Ctrl-C ends drops its database, and the next one drops that of a drill that was killed', async () => {
    const scratch = async (): Promise<string[]> => {
      const [server] = await controlSql<{ prefix: string }>(world, 'select prefix from servers');
      const { rows } = await withConnection(postgresUrl(), client =>
        client.query<{ name: string }>('select datname as name from pg_database'),
      );
      const names = rows.map(({ name }) => name);
      return names.filter(name => isScratchName({ prefix: server?.prefix ?? '' }, name));
    };
    const endBy = async (signal: 'SIGINT' | 'SIGKILL') => {
      const drill = startScript('scripts/tenant.ts', ['backup', 'drill'], recovery);
      await eventually(async () => drill.process.exitCode !== null || (await scratch()).length > 0);
      drill.process.kill(signal);
      return drill.ended;
    };

    let interrupted = await endBy('SIGINT');
    // A drill whose work was over before the signal arrived says nothing of it.
    while (interrupted.stderr === '') interrupted = await endBy('SIGINT');

    expect(interrupted.stderr).to.include('Interrupted: waiting for the running restore');
    expect(await scratch()).to.deep.equal([]);

    await endBy('SIGKILL');
    await succeed(recovery, 'tenant', ['backup', 'drill']);
    expect(await scratch()).to.deep.equal([]);
  });

  it('on the recovery host, a drill proves the archive of every tenant, and names what no restore brings back', async () => {
    const drilled = await runCommand('scripts/tenant.ts', ['backup', 'drill', '--json'], recovery);
    expect(drilled.code, drilled.stderr).to.equal(0);

    const outcomes = new Map(lines(drilled.stdout).map(outcome => [outcome.slug, outcome]));
    expect(outcomes.get('globex')).to.include({ state: 'proved', error: null });
    expect(outcomes.get('acme')).to.include({ state: 'proved', error: null });
    const left = (outcomes.get('acme')?.notRestored ?? []) as string[];
    expect(left.some(name => /^data\/\d+-reports\.totals\.1\.csv$/.test(name))).to.equal(true);

    const proofs = await controlSql<{ name: string }>(
      world,
      'select name from archives where proved_at is not null',
    );
    expect(proofs.map(({ name }) => name)).to.have.members([
      await newestOf('acme'),
      await newestOf('globex'),
    ]);
  });

  it('an archive is restored beside the present data, swapped in and taken out again, with what was added by hand', async () => {
    const before = await databases();
    const own = await present();
    const added = await sql(own, readAddedByHand);
    await admin.post('/api/v1/Currency', { Code: 'NOK', Name: 'Krone' });
    await admin.put('/api/v1/Currency/1', { Code: 'EUR', Name: 'Changed' });
    await sql(own, `delete from currencies where code = 'CHF'`);

    const restored = await runCommand(
      'scripts/tenant.ts',
      ['restore', 'acme', '--archive', 'latest', '--json'],
      recovery,
    );
    expect(restored.code, restored.stderr).to.equal(0);
    expect(restored.stderr).to.match(
      /rows of other schemas, which are not restored: data\/\d+-reports\.totals\.1\.csv/,
    );
    expect(await databases()).to.deep.equal([...before, 'filled'].sort());

    const { database } = JSON.parse(restored.stdout);
    const named = ['acme', '--database', database];
    const { document: diff } = await recover('restore', 'diff', ...named);
    const table = diff.tables.find(({ table: name }: { table: string }) => name === 'currencies');
    expect(table).to.deep.include({ added: 1, changed: 1, gone: 1 });

    expect((await recover('restore', 'swap', ...named, '--yes')).code).to.equal(0);
    expect(await codes()).to.have.members(['EUR', 'CHF']);
    const inPlace = await present();
    expect(inPlace.database).to.equal(database);
    expect(await sql(inPlace, readAddedByHand)).to.deep.equal(added);

    expect((await recover('restore', 'back', 'acme', '--yes')).code).to.equal(0);
    expect(await codes()).to.have.members(['EUR', 'NOK']);
  });

  it('a clone gets the data of an archive', async () => {
    const { code, document } = await recover('clone', 'acme', 'acme-old', '--archive', 'latest');

    expect(code, JSON.stringify(document)).to.equal(0);
    const [{ names } = { names: [] }] = await withConnection(
      world.acme.adminUrl.replace(world.acme.database, document.database),
      async client =>
        (
          await client.query<{ names: string[] }>(
            'select array_agg(code order by code) as names from currencies',
          )
        ).rows,
    );
    expect(names).to.deep.equal(['CHF', 'EUR']);
  });

  it('a forged, renamed, changed or cut archive is restored by no command, and nothing is half restored', async () => {
    const own = await newestOf('acme');
    const other = await newestOf('globex');
    const path = (name: string) => join(folder, name);
    const kept = await readFile(path(own));
    const before = await databases();
    const members = await membersOf({ bytes: kept, identity });
    const { mac: _, ...unsigned } = JSON.parse(members.at(-1)?.content.toString() ?? '');
    const forged = [
      ...members.slice(0, -1),
      { name: 'manifest.json', content: Buffer.from(`${JSON.stringify(unsigned, null, 1)}\n`) },
    ];
    const cases: Record<string, { bytes: Buffer; says: RegExp }> = {
      forged: {
        bytes: await sealBytes(await tarOf(forged), identity),
        says: /nobody knows who has written it/,
      },
      'of another tenant': {
        bytes: await readFile(path(other)),
        says: /it is an archive of tenant/,
      },
      changed: {
        bytes: Buffer.concat([kept.subarray(0, 9_000), Buffer.from('x'), kept.subarray(9_001)]),
        says: /a byte of it was changed/,
      },
      cut: { bytes: kept.subarray(0, -1), says: /ends too early/ },
      empty: { bytes: Buffer.alloc(0), says: /it is empty/ },
    };

    try {
      for (const [name, { bytes, says }] of Object.entries(cases)) {
        await writeFile(path(own), bytes);
        const { code, document } = await recover('restore', 'acme', '--archive', 'latest');
        expect(code, name).to.equal(1);
        expect(document.message, name).to.match(says);
        expect(document.hint, name).to.match(/^Nothing was restored\. Restore another archive: /);
      }
      await writeFile(path(own), cases.forged?.bytes ?? '');
      const drilled = await runCommand(
        'scripts/tenant.ts',
        ['backup', 'drill', '--count', '9'],
        recovery,
      );
      expect(drilled.code).to.equal(1);
      expect(await databases()).to.deep.equal(before);

      const typed = ['restore', 'acme', '--archive', own, '--without-mac'];
      expect((await recover(...typed, 'globex')).document.message).to.match(
        /^That is not acme: nothing was changed/,
      );
      expect((await recover(...typed, 'acme')).code).to.equal(0);
      expect(await databases()).to.have.length(before.length + 1);

      await world.installation.statements.query(
        `update archives set state = 'unproved' where tenant_guid = $1`,
        [world.acme.guid],
      );
      const latest = ['restore', 'acme', '--archive', 'latest', '--without-mac', 'acme'];
      for (const options of [['--dry-run'], []]) {
        const { code, document } = await recover(...latest, ...options);
        expect(code).to.equal(1);
        expect(document.message)
          .to.include(`No list records the newest archive of acme, ${own} (`)
          .and.include('without its code nobody knows who has written it');
      }
    } finally {
      await world.installation.statements.query(
        `update archives set state = 'complete' where tenant_guid = $1`,
        [world.acme.guid],
      );
      await writeFile(path(own), kept);
    }
  });

  it('an older archive that was renamed to be the newest is refused', async () => {
    const own = await newestOf('acme');
    const later = own.replace(
      /\d{8}T\d{6}\.\d{3}Z/,
      new Date(Date.now() + 60_000).toISOString().replace(/[-:]/g, ''),
    );
    await copyFile(join(folder, own), join(folder, later));

    const { code, document } = await recover('restore', 'acme', '--archive', 'latest');
    await rm(join(folder, later));

    expect(code).to.equal(1);
    expect(document.message).to.include(`it was made under another name: ${own}`);
  });

  it('archives of before two changes of the master key are restored', async () => {
    const former = recovery.MASTER_KEY ?? '';
    const keys = Array.from({ length: 2 }, () => randomBytes(32).toString('base64'));
    let present = former;

    for (const key of [...keys, former]) {
      await succeed({ ...recovery, MASTER_KEY: key, MASTER_KEY_PREVIOUS: present }, 'control', [
        'reseal',
        '--yes',
      ]);
      present = key;
      if (key !== keys[1]) continue;

      const environment = { ...recovery, MASTER_KEY: key };
      const { code, document } = await on(environment, 'restore', 'acme', '--archive', 'latest');
      expect(code, JSON.stringify(document)).to.equal(0);
    }
  });

  it('the lost databases of all tenants are restored from their newest archives', async () => {
    const { database: name } = await present();
    await withConnection(postgresUrl(), client =>
      client.query(`alter database "${name}" rename to "${name}_lost"`),
    ).catch(async () => {
      await withConnection(postgresUrl(), client =>
        client.query(`drop database "${name}" with (force)`),
      );
    });

    const { code, stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['restore', '--lost', '--all'],
      recovery,
    );

    expect(code, stderr + stdout).to.equal(0);
    expect(stdout).to.match(/^acme: restored, its data is of /m);
    expect(await codes()).to.have.members(['EUR', 'CHF']);
  });
});
