import { expect } from 'chai';
import { startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, sql, type World } from '../support/world.ts';

const rows = 30_000;

describe('drill: imports of killed processes', () => {
  let world: World;

  before(async () => {
    world = await createWorld();
  });
  after(() => world.close());

  it('an import whose process is killed leaves nothing, and another process then makes all of it once', async () => {
    const environment = { ...world.environment, PORT: '0', MANAGEMENT_PORT: '0' };
    const running = startScript('src/main.ts', [], environment);
    try {
      const port = await eventually(() => /"port":(\d+)/.exec(running.output.stdout)?.[1], 60_000);
      const admin = await world.login(world.acme);
      const lines = Array.from({ length: rows }, (_, index) => `Customer ${index},customer,${1 + (index % 3)}`);
      const { headers, status } = await admin
        .at(`http://127.0.0.1:${port}`)
        .send('POST', '/api/v1/Imports?resource=Entity', `Name,EntityType,StatusId\n${lines.join('\n')}\n`, {
          'Content-Type': 'text/csv',
        });
      expect(status).to.equal(202);
      const counts = async () =>
        sql(
          world.acme,
          `select (select count(*)::int from entities) as entities,
                  (select count(*)::int from audit_log where resource = 'Entity') as entries`,
        );
      const state = 'select state from imports';
      await eventually(async () => (await sql<{ state: string }>(world.acme, state))[0]?.state === 'running');
      // The rows of the transaction are in the table before it ends, where only its size shows them.
      await eventually(async () => {
        const [{ size } = { size: 0 }] = await sql<{ size: number }>(
          world.acme,
          `select pg_table_size('entities')::int as size`,
        );
        return size > 500_000;
      }, 60_000);
      running.process.kill('SIGKILL');
      await running.ended;
      expect((await counts())[0]).to.include({ entities: 0, entries: 0 });

      const path = headers.get('location') ?? '';
      const done = await eventually(async () => {
        const { body } = await admin.get(path);
        return body.State === 'done' && body;
      }, 120_000);
      expect(done).to.include({ Rows: rows, Created: rows, Refused: 0 });
      expect((await counts())[0]).to.include({ entities: rows, entries: rows });
    } finally {
      running.process.kill('SIGKILL');
    }
  });
});
