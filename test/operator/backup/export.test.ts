import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { parse } from 'csv-parse/sync';
import { extract } from 'tar-stream';
import { factorWorld } from '../../accounts/auth/factors/factor-world.ts';
import { startProgram } from '../../support/command-line.ts';
import { runCommand } from '../../support/run-command.ts';
import { useFolder } from '../../support/use.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';

describe('an export of a tenant', () => {
  const world = useWorld();
  const folder = useFolder();
  const people = factorWorld(world);
  let environment: Record<string, string>;
  /** The key of an authenticator app, in base 32. */
  let secret: string;

  before(async () => {
    environment = { ...world.environment };
    const admin = await world.login(world.acme);
    await admin.post('/api/v1/EntityStatus', { Title: 'Semi;colon, "quotes" \\ and ü' });
    await sql(
      world.acme,
      `insert into currencies (code, name, symbol) values
         ('RUN', '=cmd|''/c calc''!A0', '+1'), ('AT', '@SUM(1)', E'\\t=1'), ('OWN', '''=1', '＝1'), ('NO', 'a=1', '-')`,
    );
    await sql(world.acme, 'create table amounts (id int, amount numeric, at date, labels text[])');
    await sql(world.acme, `insert into amounts values (1, -5, '2026-01-31', '{-a,=b}')`);
    await sql(
      world.acme,
      `with hook as (
         insert into webhooks (url, resources, actions, payload, is_enabled, position, user_id)
         values ('https://receiver.test', '{Currency}', '{create}', 'thin', true, '0', 1) returning id)
       insert into webhook_secrets (webhook_id, secret) select id, 'sealed-secret' from hook`,
    );
    const person = await people.add(world.acme);
    secret = (await people.addTotp(person.client)).secret;
    const other = await world.login(world.globex);
    await other.post('/api/v1/Currency', { Code: 'USD', Name: 'Secret of globex' });
  });

  async function membersOf(path: string): Promise<Map<string, string>> {
    const members = new Map<string, string>();
    const tar = extract();
    createReadStream(path).pipe(tar);
    for await (const entry of tar) {
      members.set(entry.header.name, await text(entry));
    }
    return members;
  }

  it('an export has the tables and people of the tenant as CSV, no cell that a spreadsheet runs, no secret, and nothing of another tenant', async () => {
    const path = join(folder, 'acme.tar');
    const { code, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['export', 'acme', '--to', path],
      environment,
    );
    expect(code, stderr).to.equal(0);
    expect((await stat(path)).mode & 0o077).to.equal(0);
    expect(await readdir(folder)).to.deep.equal(['acme.tar']);

    const members = await membersOf(path);
    const manifest = JSON.parse(members.get('manifest.json') ?? '');
    expect(manifest).to.include({ kind: 'export', name: null });
    expect(manifest).to.not.have.property('mac');
    expect(manifest.leftOut.map(({ name }: { name: string }) => name)).to.include(
      'table public.webhook_secrets',
    );

    const read = (name: string): Record<string, string>[] => {
      const table = manifest.tables.find((each: { name: string }) => each.name === name);
      const rows = parse(members.get(table.pieces[0]) ?? '', { columns: true }) as Record<
        string,
        string
      >[];
      expect(rows, name).to.have.length(table.rows);
      return rows;
    };
    const currencies = new Map(
      read('currencies').map(({ code: key, name, symbol }) => [key, [name, symbol]]),
    );
    expect(currencies.get('RUN')).to.deep.equal([`'=cmd|'/c calc'!A0`, `'+1`]);
    expect(currencies.get('AT')).to.deep.equal([`'@SUM(1)`, `'\t=1`]);
    expect(currencies.get('OWN')).to.deep.equal([`''=1`, `'＝1`]);
    expect(currencies.get('NO')).to.deep.equal(['a=1', `'-`]);
    expect(read('amounts')).to.deep.equal([
      { id: '1', amount: '-5', at: '2026-01-31', labels: '{-a,=b}' },
    ]);
    expect(read('users').map(({ email }) => email)).to.include(world.acme.admin.email);
    expect(read('entity_statuses').map(({ title }) => title)).to.include(
      'Semi;colon, "quotes" \\ and ü',
    );

    const [factor] = await controlSql<{ hash: string; sealed: string }>(
      world,
      `select encode(c.hash, 'hex') as hash, encode(f.secret, 'hex') as sealed
         from factors f join recovery_codes c on c.user_id = f.user_id limit 1`,
    );
    const { hash = '', sealed = '' } = factor ?? {};
    expect(hash).not.to.equal('');
    const data = [...members]
      .filter(([name]) => name.startsWith('data/'))
      .map(([, content]) => content);
    for (const part of [
      secret,
      hash,
      sealed,
      'argon2',
      'globex',
      'role_password',
      'sealed-secret',
      Buffer.from('sealed-secret').toString('hex'),
    ]) {
      expect(data.join(''), part).not.to.include(part);
    }

    const again = await runCommand(
      'scripts/tenant.ts',
      ['export', 'acme', '--to', path],
      environment,
    );
    expect(again.code).to.equal(1);
    expect(again.stderr).to.equal(`${path} exists already: remove it, or name another file.\n`);
  });

  it('an export that does not fit says where it cannot be written, and leaves nothing', async () => {
    const before = await readdir(folder);
    const limited = 'ulimit -f 1; exec "$0" "$@"';
    const command = ['bin/backoffice', 'export', 'acme', '--to', join(folder, 'large.tar')];
    const { code, stderr } = await startProgram('sh', ['-c', limited, ...command], environment)
      .ended;

    expect(stderr).to.equal(
      `${folder} cannot be written (EFBIG): name a file in another folder.\n`,
    );
    expect(code).to.equal(1);
    expect(await readdir(folder)).to.deep.equal(before);
  });
});
