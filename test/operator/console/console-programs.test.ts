import { expect } from 'chai';
import { storeKey, storeProgram } from '../../accounts/programs/stored-programs.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, useWorld } from '../../support/world.ts';
import { lastAction, openConsole, pages, useConsole } from './console-client.ts';

const me = '/api/v1/auth/me';
const key = /sbk_[0-9a-v]{32}[0-9a-f]{8}/;

describe('console: programs', () => {
  const world = useWorld();
  const opened = useConsole(world);

  const statusOf = async (key: string): Promise<number> =>
    (await world.anonymous.withToken(key).get(me)).status;

  it('a form makes a key of a picked program, and only the page of its run has the key', async () => {
    const program = await storeProgram(world, world.acme, { name: 'Till in Graz' });
    const foreign = await storeProgram(world, world.globex, { name: 'Till in Linz' });
    const form = '/operations/program/key/add';

    const { text } = await opened.get(`${form}?slug=acme`);
    const fields = { slug: 'acme', program: String(program.id), days: '30', step: 'run' };
    const made = await opened.ended((await opened.submit(form, fields)).path);

    expect(text).to.include(`<option value="${program.id}">${program.id} – Till in Graz</option>`);
    expect(text).to.not.include(`value="${foreign.id}"`);
    const [secret = ''] = key.exec(made.text) ?? [];
    expect(made.text.match(new RegExp(key, 'g'))).to.have.length(1);
    expect(await statusOf(secret)).to.equal(200);
    for (const path of pages) {
      expect((await opened.get(path)).text, path).to.not.include(secret);
    }
    expect(await lastAction(world)).to.include({ command: 'program key add' });
    const [recorded] = await controlSql<{ found: number }>(
      world,
      'select count(*)::int as found from operator_actions a where a::text like ?',
      [`%${secret}%`],
    );
    expect(recorded?.found).to.equal(0);
  });

  it('the page of a tenant has its programs and their valid keys, and its links revoke and disable them after the plan', async () => {
    const program = await storeProgram(world, world.acme, { name: 'Price list' });
    const [one, two] = [
      await storeKey(world, world.acme, program.id),
      await storeKey(world, world.acme, program.id),
    ];

    const page = (await opened.get('/tenants/acme')).text;
    const elsewhere = (await opened.get('/tenants/globex')).text;
    const links = [
      ['/operations/program/key/revoke', `slug=acme&#38;key=${one.id}`],
      ['/operations/program/disable', `slug=acme&#38;program=${program.id}`],
    ];
    for (const [path, query] of links) expect(page).to.include(`href="${path}?${query}"`);
    expect(elsewhere).to.not.include('Price list').and.not.include(one.id);

    const revoke = '/operations/program/key/revoke';
    const plan = await opened.ended(
      (await opened.submit(revoke, { slug: 'acme', key: one.id, step: 'plan' })).path,
    );
    expect(plan.text).to.include(`key ${one.id} (sbk_`).and.not.include('without a valid key');
    expect(await statusOf(one.key)).to.equal(200);
    await opened.ended((await opened.submit(`${plan.path}/perform`, { typed: 'acme' })).path);
    await eventually(async () => (await statusOf(one.key)) === 401, announcedMs);
    expect(await statusOf(two.key)).to.equal(200);

    const disable = '/operations/program/disable';
    const fields = { slug: 'acme', program: String(program.id), step: 'plan' };
    const planned = await opened.ended((await opened.submit(disable, fields)).path);
    await opened.ended((await opened.submit(`${planned.path}/perform`, { typed: 'acme' })).path);
    await eventually(async () => (await statusOf(two.key)) === 401, announcedMs);
    expect((await opened.get('/tenants/acme')).text).to.include(
      `href="/operations/program/enable?slug=acme&#38;program=${program.id}"`,
    );
  });

  it('a command of three words in a refusal leads to its form, filled in', async () => {
    const { id } = await storeProgram(world, world.acme);
    for (let count = 0; count < 5; count++) await storeKey(world, world.acme, id);

    const fields = { slug: 'acme', program: String(id), step: 'plan' };
    const { path } = await opened.submit('/operations/program/key/add', fields);
    const { text } = await opened.ended(path);

    expect(text).to.include('has 5 valid keys, and can have no more');
    expect(text).to.include(
      `<a href="/operations/program/key/list?slug=acme&#38;program=${id}">bin/backoffice program key list acme ${id}</a>`,
    );
  });

  it('a whole key in a form of programs is refused before any command has it', async () => {
    const program = await storeProgram(world, world.acme);
    const { key: secret } = await storeKey(world, world.acme, program.id);

    const forms = [
      ['/operations/program/key/find', 'prefix', 'plan'],
      ['/operations/program/key/find', 'prefix', 'run'],
      ['/operations/program/key/revoke', 'key', 'plan'],
    ] as const;

    for (const [path, field, step] of forms) {
      const fields = { slug: 'acme', [field]: secret, step };
      expect((await opened.submit(path, fields)).status, path).to.equal(422);
    }
    expect((await opened.get('/log')).text).to.not.include(secret);
  });

  it('a console that runs the set support runs no command of programs', async () => {
    const support = await openConsole(world.environment, ['--no-browser', '--allow', 'support']);
    try {
      const { text } = await support.get('/operations/program/key/add?slug=acme');
      expect(text).to.include('This console does not run it').and.not.include('value="run"');
    } finally {
      expect(await support.stop()).to.equal(0);
    }
  });
});
