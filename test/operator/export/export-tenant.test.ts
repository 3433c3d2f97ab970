import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect } from 'chai';
import { parse } from 'csv-parse/sync';
import { extract } from 'tar-stream';
import { startProgram } from '../../support/command-line.ts';
import { runCommand } from '../../support/run-command.ts';
import { useFolder } from '../../support/use.ts';
import { useWorld } from '../../support/world.ts';

describe('export of a tenant', () => {
  const world = useWorld();
  const folder = useFolder();

  before(async () => {
    const admin = await world.login(world.acme);
    await admin.post('/api/v1/EntityStatus', { Title: 'Semi;colon, "quotes" \\ and ü' });
    await admin.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
    const other = await world.login(world.globex);
    await other.post('/api/v1/Currency', { Code: 'USD', Name: 'Secret of globex' });
  });

  it('JSON Lines and CSV have the same rows, each row fits its schema, and nothing is of another tenant or a secret', async () => {
    const path = join(folder, 'acme.tar');
    const { code, stderr } = await runCommand('scripts/tenant.ts', ['export', 'acme', '--to', path], world.environment);
    expect(code, stderr).to.equal(0);
    expect((await stat(path)).mode & 0o077).to.equal(0);
    expect(await readdir(folder)).to.deep.equal(['acme.tar']);

    const files = new Map<string, string>();
    const tar = extract();
    createReadStream(path).pipe(tar);
    for await (const entry of tar) files.set(entry.header.name, await text(entry));
    const { resources } = JSON.parse(files.get('manifest.json') ?? '{}');
    for (const { name, rows } of resources) {
      const validate = new Ajv2020({ validateFormats: false }).compile(
        JSON.parse(files.get(`schemas/${name}.json`) ?? ''),
      );
      const lines = (files.get(`json/${name}.jsonl`) ?? '').split('\n').filter(Boolean);
      expect(lines, name).to.have.length(rows);
      for (const line of lines) expect(validate(JSON.parse(line)), `${name}: ${line}`).to.equal(true);
      const records: Record<string, string>[] = parse(files.get(`csv/${name}.csv`) ?? '', { columns: true });
      expect(records, name).to.have.length(rows);
    }
    const titles = (files.get('json/entity_statuses.jsonl') ?? '')
      .split('\n')
      .filter(Boolean)
      .map(line => JSON.parse(line).title);
    expect(titles).to.include('Semi;colon, "quotes" \\ and ü');
    const all = [...files.values()].join('');
    expect(all).to.include(world.acme.admin.email);
    for (const secret of ['argon2', 'globex', 'role_password']) expect(all, secret).not.to.include(secret);

    const again = await runCommand('scripts/tenant.ts', ['export', 'acme', '--to', path], world.environment);
    expect([again.code, again.stderr]).to.deep.equal([1, `${path} exists already: remove it, or name another file.\n`]);
  });

  it('an export that does not fit says where it cannot be written, and leaves nothing', async () => {
    const before = await readdir(folder);
    const limited = 'ulimit -f 1; exec "$0" "$@"';
    const command = ['bin/backoffice', 'export', 'acme', '--to', join(folder, 'large.tar')];
    const { code, stderr } = await startProgram('sh', ['-c', limited, ...command], world.environment).ended;
    const expected = `${folder} cannot be written (EFBIG): name a file in another folder.\n`;
    expect([code, stderr]).to.deep.equal([1, expected]);
    expect(await readdir(folder)).to.deep.equal(before);
  });
});
