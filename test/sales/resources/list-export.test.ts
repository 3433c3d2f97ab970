import { connect } from 'node:net';
import { expect } from 'chai';
import fc from 'fast-check';
import { csvRow, readText } from '../../../src/lib/http/request/csv.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { rawRequest } from '../../support/raw-http.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

const csv = { Accept: 'text/csv' };

/** Reads CSV as RFC 4180 defines it: rows of cells, each row with CRLF at its end. */
function parse(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  for (const [, quoted, plain = '', end] of text.matchAll(
    /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/gy,
  )) {
    row.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === ',') continue;
    rows.push(row);
    row = [];
  }
  return rows;
}

/** The text that a cell of a JSON value has. */
function cellOf(value: unknown): string {
  if (value === null) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

describe('exports of lists as CSV', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  before(async () => {
    await sql(
      world.acme,
      `insert into system_options (system_option_type_id, value) values
         (5, '=1+1'), (6, '+1'), (7, '-1'), (8, '@x'), (9, $1), (10, $2), (11, 'a,"b"'), (12, E'two\\nlines'), (13, '日本 🦄'),
         (1, '＝1+1'), (2, '＋1'), (3, '－1'), (4, '＠x')`,
      ['\tx', "'=x"],
    );
    await sql(
      world.acme,
      `insert into currencies (code, name, symbol) values ('EUR', 'Euro', ''), ('DKK', 'Krone', null)`,
    );
    await sql(
      world.acme,
      `insert into entities (name, entity_type) values ('One', 'customer'), ('Two', 'supplier')`,
    );
    await sql(
      world.acme,
      `insert into promotions (promo_code, name, discount_type, discount_value, entity_ids)
       values ('P1', 'Promo', 'Percentage', 12.5, '{1,2}'), ('P2', 'Promo', 'Percentage', 7, '{}')`,
    );
    await sql(
      world.globex,
      `insert into currencies (code, name) values ('GBP', 'Pound of globex')`,
    );

    for (const EntityId of [1, 2]) {
      await admin.post('/api/v1/Activity', { ActivityCode: -7, EntityId });
    }
  });

  const rowsOf = async (path: string, client = admin): Promise<string[][]> => {
    const { status, body } = await client.get(path, csv);
    expect(status, JSON.stringify(body)).to.equal(200);
    return parse(body);
  };

  for (const path of [
    'Currency?includeDeleted=true',
    'SystemOptions',
    'Promotions',
    'Entities',
    'Activity',
    'AuditLog',
    'EntityStatus',
    'Users',
    'Roles',
  ]) {
    it(`the export of ${path} has the fields of the view as header, and the values of the JSON list`, async () => {
      const [header, ...rows] = await rowsOf(`/api/v1/${path}`);
      const records = (await admin.get(`/api/v1/${path}`)).body as Record<string, unknown>[];
      expect(records).not.to.be.empty;
      expect(header).to.deep.equal(Object.keys(records[0] ?? {}));
      const texts = records.map(record => Object.values(record).map(cellOf));
      expect(rows.map(row => row.map(readText))).to.deep.equal(texts);
    });
  }

  it('a text that a spreadsheet would run has an apostrophe before it, and a negative number has none', async () => {
    const rows = await rowsOf('/api/v1/SystemOptions?sort=SystemOptionTypeId&limit=10');

    expect(rows.slice(1).map(([, type, value]) => [type, value])).to.deep.equal([
      ['1', "'＝1+1"],
      ['2', "'＋1"],
      ['3', "'－1"],
      ['4', "'＠x"],
      ['5', "'=1+1"],
      ['6', "'+1"],
      ['7', "'-1"],
      ['8', "'@x"],
      ['9', "'\tx"],
      ['10', "''=x"],
    ]);
  });

  it('every text is read back as it was, whatever it begins with and contains', () => {
    const text = fc.string({
      unit: fc.constantFrom(
        "'",
        '=',
        '+',
        '-',
        '@',
        '＝',
        '＋',
        '－',
        '＠',
        '\t',
        '\r',
        '\n',
        '"',
        ',',
        ' ',
        'a',
        'é',
      ),
    });

    fc.assert(
      fc.property(fc.array(text, { minLength: 1, maxLength: 4 }), texts => {
        const [row] = parse(csvRow(texts));
        expect(row?.map(readText)).to.deep.equal(texts);
        for (const cell of row ?? []) expect(cell).not.to.match(/^[=+\-@＝＋－＠\t\r\n]/);
      }),
      { numRuns: 500 },
    );
  });

  it('filters, sort, q and limit apply to an export, and without limit it has every record', async () => {
    const names = async (query: string) =>
      (await rowsOf(`/api/v1/Entities?${query}`)).slice(1).map(([, name]) => name);

    expect(await names('sort=-Name')).to.deep.equal(['Two', 'One']);
    expect(await names('filter[EntityType]=supplier')).to.deep.equal(['Two']);
    expect(await names('q=ON')).to.deep.equal(['One']);
    expect(await names('limit=1')).to.deep.equal(['One']);
    expect(await rowsOf('/api/v1/TaxCodes')).to.deep.equal([
      ['Id', 'Code', 'Name', 'Rate', 'IsActive', 'CreatedAt'],
    ]);

    const refused = await admin.get('/api/v1/Entities?filter[Nothing]=1&bom=yes&limit=0', csv);
    expect(refused.status).to.equal(400);
    expect(Object.keys(refused.body.errors)).to.have.members(['filter[Nothing]', 'bom', 'limit']);
  });

  it('Accept decides by its weights between JSON and CSV, and JSON is sent when both are equal', async () => {
    const path = '/api/v1/Currency';
    const plain = await admin.get(path);

    for (const [accept = '', type] of [
      ['text/csv', 'text/csv'],
      ['text/csv, */*;q=0.1', 'text/csv'],
      ['application/json;q=0.5, text/csv;q=0.6', 'text/csv'],
      ['TEXT/CSV', 'text/csv'],
      ['text/csv, application/json', 'application/json'],
      ['application/json, text/csv', 'application/json'],
      ['text/csv;q=0.5, application/json;q=0.6', 'application/json'],
      ['text/csv;q=0', 'application/json'],
      ['text/csv; charset=utf-8; header=present', 'text/csv'],
      ['text/csv;charset="UTF-8";q=0.5, application/json;q=0.6', 'application/json'],
      ['text/*', 'application/json'],
      ['*/*', 'application/json'],
      ['application/xml', 'application/json'],
      [',;=', 'application/json'],
    ]) {
      const { status, headers } = await admin.get(path, { Accept: accept ?? '' });
      expect(status, accept).to.equal(200);
      expect(headers.get('content-type')?.split(';')[0], accept).to.equal(type);

      if (type === 'text/csv') continue;
      for (const name of ['vary', 'etag', 'cache-control', 'content-length']) {
        expect(headers.get(name), `${accept}: ${name}`).to.equal(plain.headers.get(name));
      }
    }

    const { headers } = await admin.get(path, csv);
    expect(headers.get('content-type')).to.equal('text/csv; charset=utf-8; header=present');
    expect(headers.get('content-disposition')).to.equal('attachment; filename="Currency.csv"');
    expect(headers.get('vary')).to.equal('Accept');
    expect(headers.get('cache-control')).to.equal('no-store');
    expect((await admin.get(`${path}/1`, csv)).headers.get('content-type')).to.match(/json/);
  });

  it('an export begins with a byte order mark if bom=true asks for it', async () => {
    const bytesOf = async (query: string) => {
      const headers = { Authorization: `Bearer ${admin.tokens?.accessToken}`, ...csv };
      const response = await fetch(`${world.url}/api/v1/Currency${query}`, { headers });
      return Buffer.from(await response.arrayBuffer());
    };
    expect((await bytesOf('?bom=true')).subarray(0, 5).toString('hex')).to.equal(
      `efbbbf${Buffer.from('Id').toString('hex')}`,
    );
    expect((await bytesOf('')).subarray(0, 2).toString()).to.equal('Id');
  });

  it('an export has only what its reader may see, and an empty text is distinct from null', async () => {
    const self = await world.loginAs(world.acme, {
      permissions: ['full.read'],
      scope: 'Self',
      entityId: 2,
    });

    expect((await rowsOf('/api/v1/Entities', self)).slice(1).map(([, name]) => name)).to.deep.equal(
      ['Two'],
    );
    expect(await rowsOf('/api/v1/Activity?filter[ActivityCode]=-7', self)).to.have.length(2);
    expect((await self.get('/api/v1/Users', csv)).status).to.equal(403);

    const other = await world.login(world.globex);
    expect(
      (await rowsOf('/api/v1/Currency', other)).slice(1).map(([, code]) => code),
    ).to.deep.equal(['GBP']);

    const text = (await admin.get('/api/v1/Currency?sort=Code', csv)).body as string;
    expect(text).to.include(',DKK,Krone,,2,').and.to.include(',EUR,Euro,"",2,');
  });

  describe('large exports', () => {
    before(() =>
      sql(
        world.acme,
        `set session_replication_role = replica;
         insert into activities (activity_code, comment, recorded_by, recorded_from)
         select 1, repeat(i || ' ', 500), 1, '' from generate_series(1, 5000) i`,
      ),
    );

    // One of the tests revokes every session.
    let admin: Client;
    beforeEach(async () => {
      admin = await world.login(world.acme);
    });

    const open = async (client: Client) => {
      const headers = { Authorization: `Bearer ${client.tokens?.accessToken}`, ...csv };
      const response = await fetch(`${world.url}/api/v1/Activity?filter[ActivityCode]=1&sort=Id`, {
        headers,
      });
      return (response.body as ReadableStream<Uint8Array>).getReader();
    };

    it('a record that exists all the time occurs exactly once, and no transaction is open while the client reads', async () => {
      const reader = await open(admin);
      const pieces: Uint8Array[] = [];
      const first = await reader.read();
      if (first.value) pieces.push(first.value);

      // The service reads ahead until the buffers of the connection are full.
      await eventually(async () => {
        const busy = await sql(
          world.acme,
          `select from pg_stat_activity where datname = current_database() and usename <> 'postgres' and state <> 'idle'`,
        );
        return busy.length === 0;
      });

      for (const code of [1, 1, 1]) {
        await admin.post('/api/v1/Activity', { ActivityCode: code, Comment: 'new' });
      }
      for (let piece = await reader.read(); piece.value; piece = await reader.read()) {
        pieces.push(piece.value);
      }

      const rows = parse(Buffer.concat(pieces).toString()).slice(1);
      const old = rows.filter(row => row[4] !== 'new').map(([id]) => Number(id));
      expect(old).to.have.length(5_000);
      expect(old).to.deep.equal([...new Set(old)].sort((one, other) => one - other));
    });

    it('an export whose records become as large as they can be arrives whole', async () => {
      // given
      await sql(
        world.acme,
        `set session_replication_role = replica;
         insert into audit_log (action, resource, record_key, before, after, database_user)
         select 'update', 'PromotionUse', i::text, contents, contents, 'postgres'
           from generate_series(1, 5000) i, jsonb_build_object('Name', repeat('x', case when i > 2020 then 16000 else 8 end)) contents`,
      );

      // when
      const path = '/api/v1/AuditLog?filter[Resource]=PromotionUse&sort=Id';
      const rows = await rowsOf(path, admin);

      // then
      expect(rows.slice(1)).to.have.length(5_000);
    });

    it('a client that cancels an export, or asks for its head, causes no error in the log', async () => {
      const reader = await open(admin);
      await reader.read();
      await reader.cancel();

      const lines = () =>
        world.logs.map(
          line => JSON.parse(line) as { status?: number; route?: string; event?: string },
        );
      await eventually(() =>
        lines().some(({ status, route }) => status === 499 && route === '/api/v1/Activity'),
      );

      const head = await admin.send('HEAD', '/api/v1/Activity', undefined, csv);
      expect(head.status).to.equal(200);
      expect(head.body).to.equal('');
      expect(head.headers.get('content-type')).to.equal('text/csv; charset=utf-8; header=present');

      expect(lines().filter(({ event }) => event === 'unanswered')).to.deep.equal([]);
    });

    it('a client that leaves before its export begins causes no error in the log', async () => {
      const { hostname, port } = new URL(world.url);
      const authorization = `Authorization: Bearer ${admin.tokens?.accessToken}`;

      await withConnection(world.acme.adminUrl, async client => {
        await client.query('begin; lock table units_of_measure in access exclusive mode');
        const socket = connect(Number(port), hostname);
        socket.write(rawRequest('GET /api/v1/UnitsOfMeasure', [authorization, 'Accept: text/csv']));

        // On other connections: a transaction sees the activity of its first look.
        const ofService = (condition: string) =>
          sql(
            world.acme,
            `select from pg_stat_activity
              where datname = current_database() and usename <> 'postgres' and ${condition}`,
          );

        await eventually(async () => (await readLockWaiters(client)).length > 0);
        socket.destroy();

        await eventually(() =>
          world.logs.some(
            line =>
              line.includes('"status":499') && line.includes('"route":"/api/v1/UnitsOfMeasure"'),
          ),
        );

        await client.query('rollback');
        await eventually(async () => (await ofService(`state <> 'idle'`)).length === 0);
      });

      await admin.get('/api/v1/UnitsOfMeasure');
      expect(world.logs.filter(line => JSON.parse(line).level >= 50)).to.deep.equal([]);
    });

    /** @returns the error that ends the file; undefined: it arrives whole */
    const readToEnd = async (reader: ReadableStreamDefaultReader): Promise<unknown> => {
      try {
        while (!(await reader.read()).done) await new Promise(setImmediate);
        return undefined;
      } catch (error) {
        return error;
      }
    };

    it('an export ends with a closed connection when the session is revoked, not as a complete file', async () => {
      const reader = await open(await world.login(world.acme));
      await reader.read();

      await sql(
        { ...world.acme, adminUrl: world.config.databaseUrl ?? '' },
        'update sessions set revoked_at = now()',
      );

      expect(await readToEnd(reader)).to.be.instanceOf(Error);
    });

    it('an export goes on for 15 minutes after its token has expired, and is cut then, however slowly its client reads', async () => {
      const minute = 60;
      for (const [expiredFor, outcome] of [
        [14 * minute, 'undefined'],
        [16 * minute, 'Error'],
      ] as const) {
        const reader = await open(await world.login(world.acme));
        await reader.read();
        world.clock.offsetSeconds = 15 * minute + expiredFor;

        const error = await readToEnd(reader);

        world.clock.offsetSeconds = 0;
        expect(error instanceof Error ? 'Error' : String(error)).to.equal(outcome);
      }
    });
  });
});
