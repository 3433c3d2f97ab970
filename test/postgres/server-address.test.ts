import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { requireServerVersion } from '../../src/operator/control/control-head.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { type OwnSource, ownSource, ownSourceColumns, sourceExpression } from '../../src/postgres/server-address.ts';
import { postgresUrl } from '../support/test-server.ts';

describe('identity of databases and servers', () => {
  const [first, second, aside] = ['a', 'b', 'c'].map(letter => `named_${letter}_${randomBytes(4).toString('hex')}`);
  const run = (...statements: string[]) =>
    withConnection(postgresUrl(), async client => {
      for (const statement of statements) await client.query(statement);
    });

  before(() => run(`create database ${first}`, `create database ${second}`));
  after(() => run(`drop database ${first}`, `drop database ${second}`));

  it('two databases that swap their names get other sources, until they are renamed back', async () => {
    const source = (name = '') =>
      withConnection(
        databaseUrl(postgresUrl(), name),
        async client => {
          const { rows } = await client.query<OwnSource>(`select ${ownSourceColumns} from pg_class limit 1`);
          return rows[0] && ownSource(rows[0]);
        },
        { settings: { timezone: 'UTC', datestyle: 'ISO' } },
      );
    const polled = (name = '') =>
      withConnection(postgresUrl(), async client => {
        const expression = sourceExpression('datname', 'datid');
        const text = `select ${expression} as source from pg_stat_database where datname = $1`;
        return (await client.query<{ source: string }>(text, [name])).rows[0]?.source;
      });
    const sources = [await source(first), await source(second)];
    expect([await polled(first), await polled(second)]).to.deep.equal(sources);
    const swap = [
      `alter database ${first} rename to ${aside}`,
      `alter database ${second} rename to ${first}`,
      `alter database ${aside} rename to ${second}`,
    ];
    await run(...swap);
    for (const swapped of [await source(first), await source(second)]) expect(sources).to.not.include(swapped);
    await run(...swap);
    expect([await source(first), await source(second)]).to.deep.equal(sources);
  });

  it('a control database on a server older than PostgreSQL 15 is refused with one sentence', () => {
    for (const version of [150_000, 180_004]) requireServerVersion(version);
    expect(() => requireServerVersion(140_019)).to.throw(
      /^The control database is on PostgreSQL 14\. Upgrade its server: PostgreSQL 15 or later is required$/,
    );
  });
});
