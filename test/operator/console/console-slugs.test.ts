import { expect } from 'chai';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';
import { useConsole } from './console-client.ts';

describe('console: former slugs', () => {
  const world = useWorld();
  const opened = useConsole(world);

  const edit = async (...args: string[]) => {
    const { code, stderr } = await runCommand(
      'scripts/backoffice.ts',
      ['edit', ...args],
      world.environment,
    );
    expect(code, stderr).to.equal(0);
  };
  const guidOf = async (slug: string) => {
    const [found] = await controlSql<{ guid: string }>(
      world,
      'select guid from tenants where slug = ?',
      [slug],
    );
    return found?.guid;
  };

  before(async () => {
    // These are also parts of the paths of the pages.
    for (const slug of ['te', 'recovery', 'acme-now']) {
      const present = await controlSql<{ slug: string }>(
        world,
        'select slug from tenants where guid = ?',
        [world.acme.guid],
      );
      await edit(present[0]?.slug ?? '', '--slug', slug);
    }
  });

  it('each page of an alias leads to that of the present slug, with what was asked', async () => {
    for (const [path, present] of [
      ['/tenants/acme', '/tenants/acme-now'],
      ['/tenants/te', '/tenants/acme-now'],
      ['/tenants/t%65', '/tenants/acme-now'],
      ['/tenants/te/commands', '/tenants/acme-now/commands'],
      ['/recovery/recovery', '/recovery/acme-now'],
      ['/recovery/te', '/recovery/acme-now'],
    ] as const) {
      const { status, path: shown } = await opened.get(`${path}?before=5`);

      expect(status, path).to.equal(200);
      expect(shown, path).to.equal(`${present}?before=5`);
    }
  });

  it('a command in a form takes an alias, and wants the present slug typed', async () => {
    const planned = await opened.submit('/operations/suspend', { slug: 'te', step: 'run' });
    const plan = await opened.ended(planned.path);

    const wrong = await opened.submit(`${plan.path}/perform`, { typed: 'te' });

    expect(plan.text).to.include('acme-now will not be served until it is resumed');
    expect(wrong.status).to.equal(422);
  });

  it('an alias that has ended leads to no page', async () => {
    await edit('globex', '--slug', 'globex-now');
    expect((await opened.get('/tenants/globex')).path).to.equal('/tenants/globex-now');

    await edit('globex-now', '--alias-days', '0');

    expect((await opened.get('/tenants/globex')).status).to.equal(404);
    expect((await opened.get('/tenants/globex-now')).status).to.equal(200);
  });

  it('a reserved slug is given by the form of provision after the company that had it is named and the slug is typed', async () => {
    const former = await world.provision('initech');
    await edit('initech', '--slug', 'initech-now', '--alias-days', '0');
    const fields = { slug: 'initech', name: 'Initech', adminEmail: 'a@initech.test' };
    const refused = await opened.ended(
      (await opened.submit('/operations/provision', { ...fields, step: 'run' })).path,
    );
    expect(refused.text)
      .to.include('initech was the slug of initech Ltd')
      .and.include('It is reserved');

    const plan = await opened.ended(
      (await opened.submit('/operations/provision', { ...fields, reuseSlug: 'on', step: 'run' }))
        .path,
    );
    expect(plan.text).to.include('initech was the slug of initech Ltd').and.include(former.guid);
    expect((await opened.submit(`${plan.path}/perform`, { typed: 'initech-now' })).status).to.equal(
      422,
    );
    expect(await guidOf('initech')).to.equal(undefined);

    const made = await opened.ended(
      (await opened.submit(`${plan.path}/perform`, { typed: 'initech' })).path,
    );

    expect(made.text).to.include('Provisioned initech');
    expect(await guidOf('initech'))
      .to.be.a('string')
      .and.not.equal(former.guid);
    expect(await guidOf('initech-now')).to.equal(former.guid);
  });
});
