import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { root, startProgram } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { sql, useLogin, useWorld } from '../support/world.ts';

const entities = '/api/v1/Entities';
const imported = 8_000;
const csv = { 'Content-Type': 'text/csv' };

describe('the recipe of a copy', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  /** Returns the recipe of the guide, for entities, as a program that prints the copy. */
  async function readRecipe(): Promise<string> {
    const page = await readFile(join(root, 'docs/guide/events.md'), 'utf8');
    const [, code = ''] = /## Keep a copy\n.*?```ts\n(.*?)```/s.exec(page) ?? [];
    expect(code).to.include(`const resource = 'Currency';`);

    return `
      import { createBackOffice, ProblemError } from ${JSON.stringify(join(root, 'clients/typescript/src/back-office.ts'))};
      const office = createBackOffice({ url: process.env.SERVICE, tenant: process.env.TENANT });
      await office.login(process.env.EMAIL, process.env.PASSWORD);
      const stored = undefined;
      setInterval(() => console.log(JSON.stringify([...copy.values()].map(({ Name }) => Name))), 200);
      ${code.replace(`'Currency'`, `'Entity'`).replace('/api/v1/Currency', entities)}`;
  }

  const create = (client: Client, Name: string) =>
    client.post(entities, { Name, EntityType: 'customer' });

  it('has every record of its tenant, and no other one, although 8,000 appear at once behind what it has read', async () => {
    await create(acme, 'before');
    await create(globex, 'of globex');
    const file = join(root, `test/docs/recipe-${process.pid}.ts`);
    await writeFile(file, await readRecipe());
    const program = startProgram(process.execPath, [file], {
      SERVICE: world.url,
      TENANT: world.acme.guid,
      EMAIL: world.acme.admin.email,
      PASSWORD: world.acme.admin.password,
    });

    try {
      const copied = (): string[] =>
        JSON.parse(program.output.stdout.trim().split('\n').at(-1) ?? '[]');
      await eventually(() => copied().includes('before'));

      const rows = Array.from({ length: imported }, (_, index) => `imported ${index},customer`);
      const body = `Name,EntityType\n${rows.join('\n')}\n`;
      let hasEnded = false;
      const importing = acme
        .send('POST', '/api/v1/Imports?resource=Entity', body, csv)
        .finally(() => (hasEnded = true));
      for (let count = 0; !hasEnded; count++) await create(acme, `beside ${count}`);
      expect((await importing).body).to.include({ Applied: true, Created: imported });

      const stored = await sql<{ name: string }>(world.acme, 'select name from entities');
      await eventually(() => copied().length === stored.length);
      expect(copied().sort()).to.deep.equal(stored.map(({ name }) => name).sort());
    } finally {
      program.process.kill('SIGKILL');
      await rm(file);
    }
  });
});
