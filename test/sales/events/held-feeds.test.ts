import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { RunStatement } from '../../../src/lib/postgres/statement.ts';
import { HeldFeeds, readFeedHolder } from '../../../src/sales/events/held-feeds.ts';
import { runCommand } from '../../support/run-command.ts';
import { sql, type TestTenant, useWorld } from '../../support/world.ts';

describe('a transaction that holds back the changes of a tenant', () => {
  const world = useWorld();
  let end: () => Promise<void>;
  let pid: number;

  const read =
    (tenant: TestTenant): RunStatement =>
    statement =>
      withConnection(
        tenant.adminUrl,
        async client => (await client.query(statement.text, statement.values)).rows,
      );
  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
  const addChange = (tenant: TestTenant, age: string) =>
    sql(
      tenant,
      `insert into activities (activity_code, created_at, recorded_by, recorded_from)
       values (1, now() - interval '${age}', 0, '')`,
    );

  /** A desktop tool that has changed something, and whose user has gone for lunch. */
  beforeEach(async () => {
    const ended = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<number>();
    const tool = withConnection(world.acme.adminUrl, async client => {
      await client.query(`set application_name = 'Desktop Tool'`);
      await client.query('begin');
      await client.query(`insert into entity_statuses (title) values ('Being edited')`);
      const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
      begun.resolve(Number(rows[0]?.pid));
      await ended.promise;
    });
    pid = await begun.promise;
    end = async () => {
      ended.resolve();
      await tool;
    };
    await addChange(world.acme, '40 seconds');
    await addChange(world.globex, '40 seconds');
  });
  afterEach(() => end());

  it('doctor and webhooks name a transaction that holds back the changes of a tenant, with its application, login and process, and of no other tenant', async () => {
    const found = JSON.parse((await run('doctor', '--json')).stdout).findings.filter(
      ({ check }: { check: string }) => check === 'feed_held',
    );
    const listed = await run('webhooks', 'acme');
    const others = await run('webhooks', 'globex');

    expect(found).to.have.length(1);
    expect(found[0]).to.include({ tenant: 'acme', severity: 'warning', repair: 'named' });
    expect(found[0].problem).to.match(new RegExp(`Desktop Tool of login \\S+ \\(pid ${pid}\\)`));
    expect(listed.code).to.equal(0);
    expect(listed.stderr).to.match(
      new RegExp(
        `Desktop Tool of login \\S+ \\(pid ${pid}\\), whose transaction is [4-9]\\d s old`,
      ),
    );
    expect(others.stderr).to.equal('');
  });

  it('a transaction that holds back changes is not named before they have waited for 30 s', async () => {
    expect(await readFeedHolder(read(world.globex))).to.equal(undefined);
    expect(await readFeedHolder(read(world.acme))).to.include({ application: 'Desktop Tool', pid });
  });

  it('a transaction that holds back changes is a metric and one line of the log from 30 s on, until a page of the feed is read that nothing holds back', async () => {
    let now = 0;
    const lines: object[] = [];
    const held = new HeldFeeds({ warn: (line: object) => lines.push(line) } as never, () => now);
    const note = (isHeld = true) => held.note(world.acme.guid, isHeld, read(world.acme));

    await note();
    expect(held.oldest).to.equal(undefined);

    for (now of [31_000, 42_000]) await note();
    expect(held.oldest).to.include({ application: 'Desktop Tool', pid });
    expect(lines).to.have.length(1);
    expect(lines[0]).to.include({ event: 'feed_held', tenant: world.acme.guid, pid });

    await note(false);
    expect(held.oldest).to.equal(undefined);
  });

  it('doctor --fix ends a transaction that holds back changes, and the changes go on', async () => {
    const { findings } = JSON.parse((await run('doctor', '--json')).stdout);
    const { id } = findings.find(({ check }: { check: string }) => check === 'feed_held');

    const fixed = JSON.parse((await run('doctor', '--fix', id, '--json')).stdout).findings;

    expect(fixed.find((each: { id: string }) => each.id === id)).to.include({ fixed: true });
    expect(await readFeedHolder(read(world.acme))).to.equal(undefined);
  });
});
