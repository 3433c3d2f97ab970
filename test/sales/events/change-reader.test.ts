import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import type { RunStatement } from '../../../src/lib/postgres/statement.ts';
import type { Change } from '../../../src/sales/events/change.ts';
import { type Cursor, firstCursor } from '../../../src/sales/events/change-cursor.ts';
import { type ChangePage, readChanges } from '../../../src/sales/events/change-reader.ts';
import { type ChangeFilter, changeSources } from '../../../src/sales/events/change-sources.ts';
import { changeStatement } from '../../../src/sales/events/change-statement.ts';
import { eventually } from '../../support/eventually.ts';
import { useRandom } from '../../support/random.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { useWorld } from '../../support/world.ts';

const everything = { resources: [...changeSources.keys()] };
const steps = Number(process.env.FEED_STEPS ?? 600);
const writers = 8;

describe('the reader of changes', () => {
  const world = useWorld();
  const random = useRandom();
  let connections: pg.Client[];

  beforeEach(() => (connections = []));
  afterEach(() => Promise.all(connections.map(each => each.end())));

  async function connect(url: string): Promise<pg.Client> {
    const client = new pg.Client(url);
    await client.connect();
    connections.push(client);
    return client;
  }

  type ReadPage = (after: Cursor | 'now', limit?: number, maxBytes?: number) => Promise<ChangePage>;

  async function reader(filter: ChangeFilter = everything): Promise<ReadPage> {
    const client = await connect(world.acme.adminUrl);
    const read: RunStatement = async statement => (await client.query(statement)).rows;

    return (after, limit = 1_000, maxBytes = 1_000_000) =>
      readChanges(read, { after, limit, maxBytes, filter });
  }

  it('a transaction that commits after a later one is read after the cursor, and nothing is skipped or doubled', async () => {
    const [first, second, third] = await Promise.all(
      [1, 2, 3].map(() => connect(world.acme.adminUrl)),
    );
    const read = await reader();
    const { last } = await read('now');

    await first?.query('begin');
    await first?.query(insert('first'));
    await second?.query(insert('second')); // commits at once, with a later position
    const held = await read(last);
    expect(held.changes).to.deep.equal([]);
    expect(held.isHeld).to.equal(true);

    await third?.query('begin');
    await third?.query(insert('rolled back'));
    await first?.query('commit');

    const page = await eventually(async () => {
      const next = await read(held.last);
      expect(next.changes.map(nameOf)).to.deep.equal(['first', 'second']);
      return next;
    });

    await third?.query('rollback');
    expect((await read(page.last)).changes).to.deep.equal([]);
  });

  it('a long transaction in the database of another tenant does not hold changes back', async () => {
    const [other, writer] = [
      await connect(world.globex.adminUrl),
      await connect(world.acme.adminUrl),
    ];
    const read = await reader();
    const { last } = await read('now');

    await other.query('begin');
    await other.query(insert('elsewhere'));
    await writer.query(insert('here'));

    // A short transaction elsewhere, which ends while the reader looks, may hold changes back
    // for one look.
    await eventually(async () => {
      expect((await read(last)).changes.map(nameOf)).to.deep.equal(['here']);
      return true;
    });

    await other.query('rollback');
  });

  it(`each of ${steps} random steps of concurrent transactions leaves every committed change to be read exactly once`, async function () {
    this.timeout(600_000);

    const clients = await Promise.all(
      Array.from({ length: writers }, () => connect(world.acme.adminUrl)),
    );
    const elsewhere = await connect(databaseUrl(postgresUrl(), 'postgres'));
    const read = await reader();

    const open = new Map<pg.Client, string[]>();
    const committed: string[] = [];
    const seen: string[] = [];
    let { last } = await read('now');

    for (let step = 0; step < steps; step++) {
      const client = random.pick(clients) as pg.Client;
      const names = open.get(client);
      const choice = random.integer(0, 9);

      if (!names) {
        await client.query('begin');
        open.set(client, []);
      } else if (choice < 5) {
        const name = `step ${step}`;
        if (choice === 0) await client.query('savepoint one');
        await client.query(choice === 1 ? insertActivity(name) : insert(name));
        names.push(name);
      } else if (choice < 8) {
        await client.query('commit');
        committed.push(...names);
        open.delete(client);
      } else if (choice === 8) {
        await client.query('rollback');
        open.delete(client);
      } else {
        await elsewhere.query('select pg_current_xact_id()');
      }

      if (random.chance(2 / 3)) continue;
      const page = await read(last, random.integer(1, 5));
      seen.push(...page.changes.map(nameOf));
      last = page.last;
    }

    for (const [client, names] of open) {
      await client.query('commit');
      committed.push(...names);
    }

    await eventually(async () => {
      const page = await read(last);
      seen.push(...page.changes.map(nameOf));
      last = page.last;
      return page.isEnd && !page.isHeld;
    });

    expect(seen.toSorted()).to.deep.equal(committed.toSorted());
  });

  it('the feed begins with the first change after the upgrade, and reading in small pages gives the same as in one', async () => {
    const read = await reader();
    const whole = await eventually(async () => {
      const page = await read(firstCursor);
      return page.isHeld ? undefined : page;
    });

    const pieces: Change[] = [];
    for (let after: Cursor = firstCursor; ; ) {
      const page = await read(after, 7);
      pieces.push(...page.changes);
      after = page.last;
      if (page.isEnd) break;
    }

    expect(pieces.slice(0, whole.changes.length)).to.deep.equal(whole.changes);
    expect(whole.changes).to.not.be.empty;
  });

  it('a page ends before the change that exceeds its bytes, has at least one, and pages of any bytes skip nothing', async () => {
    const writer = await connect(world.acme.adminUrl);
    const read = await reader({ resources: ['SystemOption', 'Activity'] });
    const { last } = await read('now');
    const lengths = [10, 2_000, 3_900, 3_900, 1, 900, 3_000, 3_900, 5];
    for (const [n, length] of lengths.entries()) {
      await writer.query(n % 2 === 0 ? insertActivity('a'.repeat(length)) : insertOption(length));
      await writer.query(insert(`between ${n}`));
    }
    const whole = await eventually(async () => {
      const page = await read(last);
      return page.changes.length === lengths.length && page;
    });
    expect(whole.changes.map(lengthOf)).to.deep.equal(lengths);

    for (const maxBytes of [1, 3_000, 5_000, 9_000]) {
      const seen: number[] = [];
      for (let page = await read(last, 5, maxBytes); ; page = await read(page.last, 5, maxBytes)) {
        const bytes = page.changes.map(lengthOf).reduce((sum, length) => sum + length, 0);
        if (page.changes.length > 1) expect(bytes).to.be.below(maxBytes);
        if (!page.isEnd) expect(page.changes).to.not.be.empty;
        seen.push(...page.changes.map(lengthOf));
        // A transaction of another test that ends at this moment may hold changes back.
        if (page.isEnd && !page.isHeld) break;
      }
      expect(seen).to.deep.equal(lengths);
    }
  });

  it('changes after a cursor at the end of a long log are found without reading the log', async () => {
    const client = await connect(world.acme.adminUrl);
    await client.query(
      `insert into audit_log (action, resource, record_key, after, database_user)
       select 'create', 'Country', n::text, '{}', 'test' from generate_series(1, 20000) n`,
    );
    await client.query('analyze audit_log');

    const { last } = await (await reader())('now');
    const { name: _, ...statement } = changeStatement(last, everything, 100, 65_536);
    await client.query(statement); // a connection reads the catalog when it calls a function first

    const { rows } = await client.query({
      ...statement,
      text: `explain (analyze, buffers, format json) ${statement.text}`,
    });
    const [{ Plan: plan }] = rows[0]['QUERY PLAN'];

    expect(
      plan['Shared Hit Blocks'] + plan['Shared Read Blocks'],
      JSON.stringify(plan),
    ).to.be.below(100);
  });
});

const insert = (name: string): string => `insert into order_statuses (name) values ('${name}')`;
const insertActivity = (name: string): string =>
  `with actor as materialized (select set_config('app.actor', '{}', true))
   insert into activities (activity_code, comment, recorded_by, recorded_from) select 1, '${name}', 1, '' from actor`;

const insertOption = (length: number): string =>
  `insert into system_options (system_option_type_id, value) values (1, repeat('x', ${length}))`;

function lengthOf({ Record }: Change): number {
  return String(Record?.Value ?? Record?.Comment).length;
}

function nameOf({ Record }: Change): string {
  return String(Record?.Name ?? Record?.Comment);
}
