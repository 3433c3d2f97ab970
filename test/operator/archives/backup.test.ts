import { randomBytes } from 'node:crypto';
import { copyFile, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { jsonLines } from '../../support/json-lines.ts';
import { runCommand } from '../../support/run-command.ts';
import { useFolder } from '../../support/use.ts';
import { verifyPurgeRecord } from '../../support/verify-purge-record.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

interface Outcome {
  slug: string | null;
  state: string;
  file: string;
  rows: number;
  error: string | null;
}

describe('backup', () => {
  const folder = useFolder();
  const world = useWorld();
  let environment: Record<string, string>;
  const admin = useLogin(world, 'acme');

  /** Runs a command of `backup`, and returns its lines of JSON. */
  const backup = async (...args: string[]): Promise<{ code: number | null; lines: Outcome[]; stderr: string }> => {
    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', ['backup', ...args, '--json'], environment);
    const lines = args[0] === 'list' ? JSON.parse(stdout) : jsonLines(stdout);
    return { code, lines, stderr };
  };
  const stateOf = (lines: Outcome[], slug: string | null): string | undefined =>
    lines.find(line => line.slug === slug)?.state;
  const newestFile = async (slug: string): Promise<string> => {
    const { lines } = await backup('list', slug);
    return join(folder, lines[0]?.file ?? '');
  };

  before(async () => {
    environment = { ...world.environment, BACKUP_TARGET: folder };
    expect((await runCommand('scripts/tenant.ts', ['backup', 'init'], environment)).code).to.equal(0);
    await admin.post('/api/v1/EntityStatus', { Title: 'Line\nbreak \\ and "quotes"' });
    await admin.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
    await admin.post('/api/v1/Activity', { ActivityCode: 7, Comment: 'Noted' });
  });

  it('the first run archives every tenant and the control database, in files that this login alone can read', async () => {
    const { code, lines, stderr } = await backup('run', '--all');
    expect(code, stderr).to.equal(0);
    expect([stateOf(lines, 'acme'), stateOf(lines, 'globex'), stateOf(lines, null)]).to.deep.equal(
      Array(3).fill('archived'),
    );
    const { mode } = await stat(await newestFile('acme'));
    expect(mode & 0o077).to.equal(0);
    expect((await stat(join(folder, 'tenants'))).mode & 0o077).to.equal(0);
  });

  it('an archive contains neither data nor names of its tenant in clear text', async () => {
    const bytes = await readFile(await newestFile('acme'));
    for (const text of ['Noted', 'acme', 'EntityStatus', 'entity_statuses'])
      expect(bytes.includes(text), text).to.equal(false);
  });

  it('a tenant without a write since its archive is proved unchanged, and one with a write is archived again', async () => {
    await sql(world.globex, `insert into currencies (code, name) values ('USD', 'Dollar')`);
    const { lines } = await backup('run', '--all');
    expect(stateOf(lines, 'globex')).to.equal('archived');
    const again = await backup('run', '--all');
    expect(stateOf(again.lines, 'globex')).to.equal('unchanged');
    expect(stateOf(again.lines, null)).to.equal('archived');
  });

  it('verify checks every byte of every archive, and a drill restores it and compares every table', async () => {
    const verified = await backup('verify');
    expect(verified.code, verified.stderr).to.equal(0);
    const drilled = await backup('drill', '--count', '2');
    expect(drilled.code, JSON.stringify(drilled.lines)).to.equal(0);
    expect(drilled.lines.map(({ slug, state }) => [slug, state])).to.have.deep.members([
      ['acme', 'proved'],
      ['globex', 'proved'],
    ]);
    const left = await sql(world.acme, `select from pg_database where datname like '%_drill_%'`);
    expect(left).to.have.length(0);
  });

  it('verify names file and tenant of a changed, a cut, a foreign and a missing file, and exits with 1', async () => {
    const file = await newestFile('globex');
    const name = file.slice(folder.length + 1);
    const right = await readFile(file);
    const faultOf = async (bytes: Buffer): Promise<unknown> => {
      await writeFile(file, bytes);
      const { code, lines } = await backup('verify', 'globex');
      const found = (lines as unknown as { slug: string; file: string; fault: string }[]).find(
        line => line.file === name,
      );
      expect([code, found?.slug]).to.deep.equal([1, 'globex']);
      return found?.fault;
    };
    const changed = Buffer.from(right);
    changed.writeUInt8(right.readUInt8(right.length - 30) ^ 1, right.length - 30);
    expect(await faultOf(changed)).to.equal('damaged');
    expect(await faultOf(right.subarray(0, -20))).to.equal('damaged');
    expect(await faultOf(await readFile(await newestFile('acme')))).to.equal('foreign');
    await rm(file);
    const missing = await runCommand('scripts/tenant.ts', ['backup', 'verify', 'globex'], environment);
    expect(missing.stdout).to.include(`globex: ${name}: missing`);
    await writeFile(file, right);
    expect((await backup('verify', 'globex')).code).to.equal(0);
  });

  it('the archive of a tenant fails, and leaves no file, if a table has rows that it would not contain; the text of a run names it below all others, and ends with the totals', async () => {
    await sql(world.acme, 'create table parts (id integer) partition by range (id)');
    await sql(world.globex, `insert into entity_statuses (title) values ('New')`);
    const files = () => readdir(join(folder, 'tenants', world.acme.guid));
    const before = await files();
    const args = ['backup', 'run', '--all', '--concurrency', '1'];
    const { stdout } = await runCommand('scripts/tenant.ts', args, environment);
    await sql(world.acme, 'drop table parts');
    expect(
      stdout
        .trim()
        .split('\n')
        .map(line => line.replace(/:.*/, '')),
    ).to.deep.equal(['globex', '(control database)', 'acme', `folder ${folder}`]);
    expect(stdout).to.match(/^acme: .*parts is not an ordinary table/m);
    expect(await files()).to.deep.equal(before);
  });

  it('a run without a target, or with one that cannot be written, says what to set', async () => {
    const without = await runCommand('scripts/tenant.ts', ['backup', 'run', '--all'], world.environment);
    expect([without.code, without.stderr]).to.deep.equal([
      1,
      'BACKUP_TARGET is not set: set it to a folder (/mnt/backup) or a bucket (s3://bucket/prefix).\n',
    ]);
    const wrong = await runCommand('scripts/tenant.ts', ['backup', 'run', '--all'], {
      ...world.environment,
      BACKUP_TARGET: `${folder}/target.json`,
    });
    expect(wrong.code).to.equal(1);
    expect(wrong.stderr).to.match(/^The folder of BACKUP_TARGET cannot be written \((EEXIST|ENOTDIR)\): /);
  });

  it('a change of the master key seals the data keys again, and old archives stay readable', async () => {
    const next = randomBytes(32).toString('base64');
    const control = (args: string[], settings: object) =>
      runCommand('scripts/control.ts', args, { ...environment, ...settings });
    const keys = { MASTER_KEY: next, MASTER_KEY_PREVIOUS: world.environment.MASTER_KEY ?? '' };
    const resealed = await control(['reseal', '--yes'], keys);
    expect(resealed.code, resealed.stderr).to.equal(0);
    environment = { ...environment, MASTER_KEY: next };
    const early = await backup('verify', 'acme');
    expect(early.code).to.equal(1);
    expect(JSON.stringify(early.lines)).to.include('has no key of it that MASTER_KEY opens');
    expect((await backup('run', '--all')).code).to.equal(0);
    const { code, stderr } = await backup('verify', 'acme');
    expect(code, stderr).to.equal(0);
    expect(await readdir(join(folder, 'keys/control')), 'no key is left under the former master key').to.have.length(1);
  });

  it('after a purge no copy of an archive can be read, and a signed record names what was destroyed', async () => {
    const file = await newestFile('globex');
    const copy = join(folder, 'copy');
    await copyFile(file, copy);
    const name = file.slice(folder.length + 1);
    await runCommand('scripts/tenant.ts', ['delete', 'globex', '--yes'], environment);
    const { code, stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['purge', 'globex', '--yes', '--json'],
      environment,
    );
    expect(code, stderr).to.equal(0);
    const { record: text, signature } = JSON.parse(stdout);
    const record = JSON.parse(text);
    expect(record.archives.map((archive: { file: string }) => archive.file)).to.include(name);
    expect(verifyPurgeRecord(text, signature)).to.equal(true);
    expect(verifyPurgeRecord(`${text} `, signature)).to.equal(false);
    expect(await readdir(join(folder, 'keys', record.tenant.guid))).to.deep.equal([]);
    expect(await readdir(join(folder, 'purged'))).to.deep.equal([`${record.tenant.guid}.json`]);

    const verified = await backup('verify');
    expect(verified.code, JSON.stringify(verified.lines)).to.equal(0);
    expect((await backup('list')).lines.filter(({ slug }) => slug === 'globex')).to.deep.equal([]);

    const [mark, key] = ['purged/of-another-purge.json.unfinished', 'keys/of-a-killed-run.unfinished'];
    for (const unfinished of [mark, key]) await writeFile(join(folder, unfinished), '');
    const before = await readdir(join(folder, 'keys/control'));
    expect((await backup('run', '--all')).code).to.equal(0);
    const controlKeys = await readdir(join(folder, 'keys/control'));
    expect(controlKeys).to.have.length(1);
    expect(controlKeys).not.to.include(before[0]);
    expect(await readdir(join(folder, 'control'))).to.have.length(1);
    expect(await readdir(join(folder, 'tenants', record.tenant.guid))).to.have.length(0);
    expect([await readdir(join(folder, 'purged')), await readdir(join(folder, 'keys'))].flat())
      .to.include(basename(mark))
      .and.not.include(basename(key));
  });
});
