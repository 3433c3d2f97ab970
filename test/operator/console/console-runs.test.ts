import { expect } from 'chai';
import { controlSql, sql, useWorld } from '../../support/world.ts';
import { useConsole } from './console-client.ts';

describe('console: runs', () => {
  const world = useWorld();
  const opened = useConsole(world);

  it('a check that finds something is done, has not failed, goes on without its browser, and shows its end when it is opened again', async () => {
    const { database } = world.acme;
    await controlSql(world, `grant temporary on database "${database}" to "${database}"`);
    await sql(world.acme, 'create index by_hand on countries (country_name)');
    try {
      const { path } = await opened.submit('/operations/doctor', { step: 'run' });
      const gone = new AbortController();
      const headers = { Cookie: opened.cookie };
      const first = await fetch(`${opened.origin}${path}`, { headers, signal: gone.signal });
      await first.body?.getReader().read();
      gone.abort();
      const { text } = await opened.ended(path);
      expect(text).to.include('It is done, and found something.').and.include('TEMPORARY on database');
      expect(text).to.include('class="state warn"').and.not.include('It has failed');
      const findings = (await opened.get('/findings?tenant=acme')).text;
      expect(findings)
        .to.include('Looked')
        .and.include('TEMPORARY on database')
        .and.include('CREATE INDEX by_hand ON public.countries');
      expect((await opened.get('/tenants/acme')).text).to.include('href="/findings?tenant=acme"');
      const id = /name="finding" value="(\w+)"/.exec(findings)?.[1] ?? '';
      expect(findings).to.include(`/operations/doctor?fix=on&#38;finding=${id}">npx backoffice doctor --fix ${id}</a>`);
    } finally {
      await sql(world.acme, 'drop index by_hand');
      await controlSql(world, `revoke temporary on database "${database}" from "${database}"`);
    }
  });

  it('a large result says what is left out, keeps its end, and links to the whole', async () => {
    const globex = `(select id from tenants where slug = 'globex')`;
    const insert = `insert into roles (tenant_id, name) select ${globex}, 'large ' || n from generate_series(1, 2001) n`;
    await controlSql(world, insert);
    await controlSql(world, `update tenants set name = 'BEGIN' || repeat('x', 30000) || 'END' where slug = 'globex'`);
    try {
      const list = await opened.ended(
        (await opened.submit('/operations/role/list', { slug: 'globex', step: 'run' })).path,
      );
      const [row] = await controlSql<{ count: number }>(
        world,
        `select count(*)::int from roles where tenant_id = ${globex}`,
      );
      const total = row?.count ?? 0;
      expect(list.text)
        .to.include(`${(total - 200).toLocaleString('en')} further rows are not shown`)
        .and.include(`href="${list.path}/output"`);
      const rows = (await opened.get(`${list.path}/output`)).text.split('\n').filter(row => row.startsWith('large '));
      expect(rows).to.have.length(3_000);
      const shown = await opened.ended((await opened.submit('/operations/show', { slug: 'globex', step: 'run' })).path);
      expect(shown.text)
        .to.match(/BEGINx+\n…\nx+END/)
        .and.match(/[\d,]+ characters are not shown/)
        .and.include(`href="${shown.path}/output"`);
      expect((await opened.get(`${shown.path}/output`)).text).to.match(/BEGINx{30000}END/);
    } finally {
      await controlSql(world, `delete from roles where name like 'large %'`);
      await controlSql(world, `update tenants set name = 'Globex' where slug = 'globex'`);
    }
  });

  it('what an operation refuses is shown in the words of the command line', async () => {
    const { path } = await opened.submit('/operations/resume', { slug: 'nobody', step: 'plan' });
    expect((await opened.ended(path)).text)
      .to.include('There is no tenant nobody')
      .and.not.include('id="perform"');
  });
});
