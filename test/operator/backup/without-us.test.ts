import { execFile, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { generateHybridIdentity, identityToRecipient } from 'age-encryption';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import {
  archiveSettings,
  beginArchive,
  readContents,
} from '../../../src/operator/backup/archive/database-contents.ts';
import { makeIdentity } from '../../../src/operator/backup/archive/identities.ts';
import { identityTables } from '../../../src/operator/schema/tenant-tables.ts';
import { type MadeArchive, makeArchive } from '../../support/age-archives.ts';
import { makeNextBuild } from '../../support/next-build.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { useFolder } from '../../support/use.ts';
import { useWorld } from '../../support/world.ts';

const page = fileURLToPath(new URL('../../../docs/operate/without-us.md', import.meta.url));
const programs = ['age', 'zstd', 'tar', 'psql', 'createdb', 'bash'];
/** True if `age` is of version 1.3 or later, which knows post-quantum recipients. */
const isPostQuantum = /^v?1\.([3-9]|\d\d)/.test(String(spawnSync('age', ['--version']).stdout));
const missing = programs.filter(program => spawnSync('which', [program]).status !== 0);

describe('an archive without this software', () => {
  const world = useWorld();
  const folder = useFolder();
  let script: string;

  before(async function () {
    if (missing.length > 0) {
      console.log(`    left out: this machine lacks ${missing.join(', ')}`);
      this.skip();
    }
    const [, text = ''] =
      /```sh\n(#!\/bin\/bash\n[\s\S]*?)```/.exec(await readFile(page, 'utf8')) ?? [];
    script = join(folder, 'open-archive');
    await writeFile(script, text, { mode: 0o700 });
  });

  /**
   * Runs the script of the page.
   * @returns the URL of the database that it has made, and what it has said
   */
  async function open(archive: Pick<MadeArchive, 'bytes' | 'identity'>) {
    const database = `without_us_${randomBytes(5).toString('hex')}`;
    const [file, identity] = [
      join(folder, `${database}.tar.zst.age`),
      join(folder, `${database}.txt`),
    ];
    await writeFile(file, archive.bytes);
    await writeFile(identity, `# an identity\n${archive.identity.identity}\n`);

    const { hostname, port, username, password } = new URL(postgresUrl());
    const env = {
      PATH: process.env.PATH,
      TMPDIR: folder,
      PGHOST: decodeURIComponent(hostname),
      PGPORT: port,
      PGUSER: username,
      PGPASSWORD: decodeURIComponent(password),
    };
    const ended = await promisify(execFile)(script, [file, identity, database], { env }).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      ({ code, stdout, stderr }) => ({
        code: code as number,
        stdout: stdout as string,
        stderr: stderr as string,
      }),
    );

    return { ...ended, url: databaseUrl(postgresUrl(), database) };
  }

  /** Returns the contents of a database, in the form of an archive. */
  function contentsOf(url: string) {
    const work = async (client: Parameters<typeof readContents>[0]) => {
      await beginArchive(client);
      const { tables, sequences } = await readContents(client, {
        except: new Map([['itself', identityTables]]),
      });
      return { tables: tables.map(({ copied, ...table }) => table), sequences };
    };
    return withConnection(url, work, { settings: archiveSettings });
  }

  it('the script of the handbook makes a database with the same rows, checksums and sequences of an archive', async () => {
    const admin = await world.login(world.acme);
    await admin.post('/api/v1/EntityStatus', {
      Title: `'Quotes' "and" \\ , ü\nand\r\nlines\t= :x`,
    });
    await admin.post('/api/v1/Currency', { Code: 'EUR', Name: '' });
    await withConnection(world.acme.adminUrl, async client => {
      await client.query('create schema "Odd schema/.."');
      await client.query(
        'create table "Odd schema/.."."percent % ü" (id int, "a ""b"", (c)" text, of date[])',
      );
      await client.query(
        `insert into "Odd schema/.."."percent % ü" values (1, null, null), (2, '', '{2026-01-31,null}')`,
      );
      await client.query('create table by_hand (id serial, amount numeric(12, 3), at timestamptz)');
      await client.query(
        "insert into by_hand (amount, at) select n / 7.0, now() - n * interval '1 h' from generate_series(1, 500) n",
      );
      await client.query('delete from by_hand where id > 490');
    });
    const archive = await makeArchive(world.acme, { pieceBytes: 4_000 });
    expect(
      archive.manifest.members.filter(({ name }) => name.includes('by_hand')).length,
    ).to.be.greaterThan(3);

    const { code, stdout, stderr, url } = await open(archive);

    expect(stderr).to.equal('');
    expect(code, stdout).to.equal(0);
    const [ours, theirs] = [await contentsOf(world.acme.adminUrl), await contentsOf(url)];
    expect(theirs.tables).to.have.deep.members(ours.tables);
    const inPublic = ours.sequences.filter(
      ({ schema, table }) => schema === 'public' && table !== 'by_hand',
    );
    expect(theirs.sequences).to.have.deep.members(inPublic);
    expect(inPublic.length).to.be.greaterThan(10);
  });

  it('the script opens an archive for a post-quantum recipient, where age is of version 1.3 or later', async function () {
    if (!isPostQuantum) return this.skip();
    const secret = await generateHybridIdentity();
    const identity = { identity: secret, recipient: await identityToRecipient(secret) };

    const { code, stdout, stderr, url } = await open(await makeArchive(world.acme, { identity }));

    expect(code, stderr + stdout).to.equal(0);
    const [ours, theirs] = [await contentsOf(world.acme.adminUrl), await contentsOf(url)];
    expect(theirs.tables).to.have.deep.members(ours.tables);
  });

  it('an archive of the next version becomes a database of that version, with a page that its migration has no file of', async () => {
    const next = await makeNextBuild();
    const identity = await makeIdentity();
    const target = join(folder, 'archives');
    await mkdir(target);
    const environment = {
      ...world.environment,
      BACKUP_TARGET: target,
      BACKUP_RECIPIENTS: identity.recipient,
    };

    try {
      for (const args of [
        ['migrate', 'globex', '--despite-running'],
        ['backup', 'init'],
        ['backup', 'run', 'globex'],
      ]) {
        const { code, stderr } = await runCommand(
          next.file('scripts/tenant.ts'),
          args,
          environment,
        );
        expect(code, stderr).to.equal(0);
      }
    } finally {
      await next.remove();
    }
    const files = await readdir(target, { recursive: true });
    const file = files.find(name => name.includes(`/${world.globex.guid}/`)) ?? '';
    const bytes = await readFile(join(target, file));

    const { code, stdout, stderr, url } = await open({ bytes, identity });

    expect(code, stderr + stdout).to.equal(0);
    const [ours, theirs] = [await contentsOf(world.globex.adminUrl), await contentsOf(url)];
    expect(ours.tables.map(({ name }) => name)).to.include('labels');
    expect(theirs.tables).to.have.deep.members(ours.tables);
    expect(theirs.sequences).to.have.deep.members(ours.sequences);
  });

  it('the script refuses an archive that lacks its end', async () => {
    const archive = await makeArchive(world.acme);

    const { code, stderr } = await open({ ...archive, bytes: archive.bytes.subarray(0, -1_000) });

    expect(code).to.not.equal(0);
    expect(stderr).to.match(/age: error/);
  });
});
