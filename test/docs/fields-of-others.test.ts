import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { type RunningScript, root, startProgram } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { useLogin, useWorld } from '../support/world.ts';

const entities = '/api/v1/Entities';
const statuses = '/api/v1/EntityStatus';

describe('the recipe of fields that are read from other records', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  const file = join(root, `test/docs/fields-of-others-${process.pid}.ts`);
  let program: RunningScript | undefined;

  before(async () => {
    await writeFile(file, await readRecipe());
  });

  after(async () => {
    program?.process.kill('SIGKILL');
    await program?.ended;
    await rm(file, { force: true });
  });

  /** Waits until the page shows exactly these entities, each with the title of its status. */
  const expectShown = (shown: Record<string, string>): Promise<unknown> =>
    eventually(() => {
      expect(program?.output.stderr).to.equal('');
      const last = program?.output.stdout.trim().split('\n').at(-1);
      expect(JSON.parse(last || '{}')).to.deep.equal(shown);
      return true;
    });

  it('a page shows the present title of each status of its tenant, although no change of an entity has it', async () => {
    const { body: shop } = await acme.post(entities, { Name: 'Shop', EntityType: 'customer' });
    await acme.post(entities, { Name: 'Mill', EntityType: 'supplier', StatusId: 2 });
    await globex.post(entities, { Name: 'of globex', EntityType: 'customer' });

    program = startProgram(process.execPath, [file], {
      SERVICE: world.url,
      TENANT: world.acme.guid,
      EMAIL: world.acme.admin.email,
      PASSWORD: world.acme.admin.password,
    });
    await expectShown({ Shop: 'Prospect', Mill: 'Active' });

    // made after the copy was begun, and before its changes are followed
    await acme.patch(`${statuses}/1`, { Title: 'Lead' });
    await globex.patch(`${statuses}/2`, { Title: 'of globex' });
    program.process.stdin.write('follow\n');
    await expectShown({ Shop: 'Lead', Mill: 'Active' });

    const { body: lost } = await acme.post(statuses, { Title: 'Lost' });
    await acme.patch(`${entities}/${shop.Id}`, { StatusId: lost.Id });
    await acme.post(entities, { Name: 'Port', EntityType: 'customer', StatusId: lost.Id });
    await acme.patch(`${statuses}/${lost.Id}`, { Title: 'Gone' });
    await expectShown({ Shop: 'Gone', Mill: 'Active', Port: 'Gone' });

    await acme.delete(`${entities}/${shop.Id}`);
    await expectShown({ Mill: 'Active', Port: 'Gone' });
  });
});

/**
 * Returns the recipe of the guide as a program that prints what a page would show. It follows
 * the changes when it has read a line.
 */
async function readRecipe(): Promise<string> {
  const page = await readFile(join(root, 'docs/guide/events.md'), 'utf8');
  const [, code = ''] = /## Fields of other records\n.*?```ts\n(.*?)```/s.exec(page) ?? [];
  expect(code).to.include('async function keepBoth');

  return `
    import { once } from 'node:events';
    import { createBackOffice } from ${JSON.stringify(join(root, 'clients/typescript/src/back-office.ts'))};
    const office = createBackOffice({ url: process.env.SERVICE, tenant: process.env.TENANT });
    await office.login(process.env.EMAIL, process.env.PASSWORD);
    ${code}
    const after = await beginBoth();
    setInterval(() => {
      const shown = [...entities.values()].map(entity => [entity.Name, status(entity)]);
      console.log(JSON.stringify(Object.fromEntries(shown)));
    }, 200);
    await once(process.stdin, 'data');
    await keepBoth(after, new AbortController().signal);`;
}
