import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { addClient } from '../../../src/operator/credentials/clients.ts';
import type { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { controlSql, sql, useLogin, useWorld } from '../../support/world.ts';
import { examples } from '../resources/examples.ts';

const csv = { 'Content-Type': 'text/csv' };

/** Sends a file and returns the report. */
async function importFile(client: Client, query: string, file: string) {
  const { status, body } = await client.post(`/api/v1/Imports?${query}`, file, csv);
  expect(status, JSON.stringify(body)).to.equal(200);
  return body;
}

describe('imports of CSV files', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  before(async () => {
    await admin.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
    await admin.post('/api/v1/Countries', { CountryCode: 'CH', CountryName: 'Switzerland' });
    await admin.post('/api/v1/UnitsOfMeasure', { Code: '=1+1', Name: '-formula' });
    await admin.post('/api/v1/OrderStatuses', { Name: 'New' });
    await admin.post('/api/v1/TaxCodes', { Code: 'VAT', Name: 'Tax', Rate: 7.7 });
    await admin.post('/api/v1/SystemOptions', {
      SystemOptionTypeId: 1,
      Value: 'a\nb, "c"',
      IsActive: false,
    });
    await admin.post('/api/v1/SystemOptions', { SystemOptionTypeId: 2, Value: "'=quoted" });

    const entity = { EntityType: 'customer', StatusId: 2, CurrencyId: 1, CountryCode: 'CH' };
    await admin.post('/api/v1/Entities', { Name: '@home', ...entity });
  });
  afterEach(() =>
    sql(
      world.acme,
      `set session_replication_role = replica; delete from currencies where code <> 'EUR'`,
    ),
  );

  const listCurrencies = () => admin.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' });

  const countAudit = async () =>
    (await sql<{ count: number }>(world.acme, 'select count(*)::int as count from audit_log'))[0]
      ?.count;

  const mixed =
    '\uFEFFCode;Name;DecimalPlaces\r\nAAA;"Semi; colon";2\r\nBBB;"two\nlines";2\r\nbbb;Small;2\r\nAAA;Again;2\r\n' +
    'CCC;Many;9\r\nEUR;Taken;2\r\nDDD\r\n\r\nEEE;Last;\r\n';
  const mixedErrors = [
    [3, 'Name', 'invalid_text'],
    [5, 'Code', 'wrong_format'],
    [6, 'Code', 'taken'],
    [7, 'DecimalPlaces', 'too_large'],
    [8, 'Code', 'taken'],
    [9, '', 'wrong_format'],
  ];

  it('a time of a file may have a space in place of T, as databases print it, and needs its zone', async () => {
    const times = ['2026-12-01 01:00:00+01', '2026-12-01 00:00:00.000000Z', '2026-12-01 00:00:00'];
    const rows = times.map((time, at) => `9,${at},${time}`).join('\n');
    const file = `SystemOptionTypeId,Value,CreatedAt\n${rows}\n`;

    const report = await importFile(admin, 'resource=SystemOption&atomic=false&ids=own', file);
    const { body } = await admin.get('/api/v1/SystemOptions?filter[SystemOptionTypeId]=9&sort=Id');

    expect(body.map(({ CreatedAt }: { CreatedAt: string }) => CreatedAt)).to.deep.equal([
      '2026-12-01T00:00:00.000Z',
      '2026-12-01T00:00:00.000Z',
    ]);
    expect(report.Errors).to.have.length(1);
    expect(report.Errors[0]).to.include({ Line: 4, Field: 'CreatedAt', Code: 'wrong_format' });
  });

  it('an atomic import with one refused row changes nothing, and names the line and field of every error', async () => {
    const before = await countAudit();
    const rejected = await importFile(admin, 'resource=Currency', mixed);

    expect(rejected).to.include({
      Applied: false,
      Rows: 8,
      Created: 0,
      Updated: 0,
      Refused: 6,
      DryRun: false,
    });
    expect(
      rejected.Errors.map(({ Line, Field, Code }: Record<string, unknown>) => [Line, Field, Code]),
    ).to.deep.equal(mixedErrors);
    expect(rejected.Errors[5].Reason).to.equal('must have as many cells as the header: 3, not 1');

    const { body } = await admin.post('/api/v1/Currency', { Code: 'bbb', Name: 'Small' });
    expect(rejected.Errors[1].Reason, 'as a single change says it').to.equal(body.errors.Code[0]);

    expect(await countAudit()).to.equal(before);
  });

  for (const mode of ['create', 'upsert']) {
    it(`a code that a file has twice is a refused row that names both lines, with mode=${mode}, however far apart they are`, async () => {
      const between = Array.from({ length: 250 }, (_, n) => `T${n},Between ${n}`);
      const file = [
        'CountryCode,CountryName',
        'TWO,First',
        ...between,
        'two ,Second',
        '"TWO",Third',
        '',
      ].join('\n');

      const report = await importFile(
        admin,
        `resource=Country&mode=${mode}&dryRun=true&atomic=false`,
        file,
      );

      expect(report).to.include({ Rows: 253, Created: 251, Updated: 0, Refused: 2 });
      expect(report.Errors).to.deep.equal(
        [
          { Line: 253, Value: 'two ' },
          { Line: 254, Value: 'TWO' },
        ].map(({ Line, Value }) => ({
          Line,
          Row: Line,
          Cell: `A${Line}`,
          Field: 'CountryCode',
          Value,
          Code: 'taken',
          Reason: 'is on line 2 already',
        })),
      );
    });
  }

  it('a dry run reports what an import would do, and changes nothing', async () => {
    const before = await countAudit();
    const tried = await importFile(admin, 'resource=Currency&atomic=false&dryRun=true', mixed);
    expect(tried).to.include({ Applied: false, DryRun: true, Rows: 8, Created: 2, Refused: 6 });
    expect(await countAudit()).to.equal(before);
    expect((await listCurrencies()).body).to.have.length(1);
  });

  it('a dry run warns of a column in which every empty cell became the same short text, and of no other', async () => {
    const promotion = { DiscountType: 'Percentage', DiscountValue: 5 };
    for (const name of ['W1', 'W2', 'W3']) {
      const Description = name === 'W3' ? 'Kept' : null;
      await admin.post('/api/v1/Promotions', {
        ...promotion,
        PromoCode: name,
        Name: name,
        Description,
      });
    }
    const file = (...texts: string[]) =>
      `PromoCode,Name,Description\n${texts.map((text, at) => `W${at + 1},W${at + 1},${text}`).join('\n')}\n`;
    const warningsOf = async (text: string, query = '&dryRun=true') => {
      const report = await importFile(admin, `resource=Promotion&mode=upsert${query}`, text);
      return report.Warnings;
    };

    const found = await warningsOf(file('NA', 'NA', 'Kept'));

    expect(found).to.deep.equal([
      {
        Field: 'Description',
        Value: 'NA',
        Rows: 2,
        Reason: 'every record of the file that has no Description would get the same text',
      },
    ]);
    expect(await warningsOf(file('', '', 'NA')), 'as exported').to.deep.equal([]);
    expect(await warningsOf(file('NA', '', 'Kept')), 'one is empty').to.deep.equal([]);
    expect(await warningsOf(file('NA', 'None', 'Kept')), 'two texts').to.deep.equal([]);
    expect(await warningsOf(file('NA')), 'one record').to.deep.equal([]);
    expect(await warningsOf(file('Nobody has written', 'Nobody has written'))).to.deep.equal([]);
    expect(await warningsOf(file('NA', 'NA', 'Kept'), ''), 'no dry run').to.deep.equal([]);
  });

  it('the audit entries of an import have the X-Request-Id of its response, also of one that is CSV', async () => {
    for (const Accept of ['application/json', 'text/csv']) {
      const file = `Code,Name\n${Accept === 'text/csv' ? 'AAA' : 'BBB'},Traced\n`;

      const { headers } = await admin.post('/api/v1/Imports?resource=Currency', file, {
        ...csv,
        Accept,
      });

      const id = headers.get('x-request-id');
      const { body } = await admin.get(`/api/v1/AuditLog?filter[TraceId]=${id}&limit=5`);
      expect(body, Accept).to.have.length(1);
      expect(body[0].After.Name).to.equal('Traced');
    }
  });

  it('an import with atomic=false leaves out refused rows, and writes audit entries of the caller', async () => {
    const done = await importFile(admin, 'resource=Currency&atomic=false', mixed);
    expect(done).to.include({ Applied: true, Created: 2, Refused: 6 });
    const { body } = await listCurrencies();
    expect(body.map(({ Code }: { Code: string }) => Code)).to.deep.equal(['AAA', 'EEE', 'EUR']);
    const [entry] = (await admin.get('/api/v1/AuditLog?resource=Currency&limit=1')).body;
    const { userGuid } = (await admin.get('/api/v1/auth/me')).body;
    expect(entry).to.include({ Action: 'create', UserGuid: userGuid, IPAddress: '127.0.0.1' });
    expect(entry.After).to.include({ Code: 'EEE', Name: 'Last', DecimalPlaces: 2 });
  });

  it('an unchanged export that is imported again changes nothing, for every resource', async () => {
    const promotion = { DiscountType: 'Amount', DiscountValue: 5, CurrencyId: 1, EntityIds: [1] };
    const period = {
      StartsAt: '2026-01-01T00:00:00.123Z',
      EndsAt: '2027-01-01T00:00:00Z',
      Description: '',
    };
    await admin.post('/api/v1/Promotions', {
      PromoCode: 'P',
      Name: '\u00e9',
      ...promotion,
      ...period,
    });

    const refs = { statusId: 2, currencyId: 1, countryCode: 'CH', entityId: 1 };
    for (const { path, first } of Object.values(examples)) {
      expect((await admin.post(path, first(refs))).status, path).to.equal(201);
    }

    const before = await countAudit();
    for (const [resource, { path }] of Object.entries(examples)) {
      const { length } = (await admin.get(path)).body;
      for (const bom of ['', '?bom=true']) {
        const { body } = await admin.get(`${path}${bom}`, { Accept: 'text/csv' });
        const done = await importFile(admin, `resource=${resource}&mode=upsert&ids=own`, body);
        expect(done, resource).to.deep.include({
          Applied: true,
          Errors: [],
          Warnings: [],
          Rows: length,
          Unchanged: length,
        });
      }
    }

    expect(await countAudit()).to.equal(before);
  });

  it('an upsert changes the fields of its columns and no others, and creates the records that do not exist', async () => {
    const file = 'Code,Name\nvat,Value added tax\nvat,Twice\nNEW,New tax\n';
    const refused = await importFile(admin, 'resource=TaxCode&mode=upsert', file);
    expect(refused.Errors).to.deep.equal([
      {
        Line: 3,
        Row: 3,
        Cell: 'A3',
        Field: 'Code',
        Value: 'vat',
        Code: 'taken',
        Reason: 'is on line 2 already',
      },
      {
        Line: 4,
        Row: 4,
        Cell: '',
        Field: 'Rate',
        Value: '',
        Code: 'required',
        Reason: 'is required',
      },
    ]);

    const done = await importFile(admin, 'resource=TaxCode&mode=upsert&atomic=false', file);
    expect(done).to.include({ Created: 0, Updated: 1, Refused: 2 });
    const { body } = await admin.get('/api/v1/TaxCodes/code/VAT');
    expect(body).to.include({ Code: 'VAT', Name: 'Value added tax', Rate: 7.7 });

    const byId = await importFile(
      admin,
      'resource=OrderStatus&mode=upsert&ids=own',
      'Id,Name\n1,First\n,Second\n99,Nobody\n',
    );
    expect(byId.Errors).to.deep.equal([
      {
        Line: 4,
        Row: 4,
        Cell: 'A4',
        Field: 'Id',
        Value: '99',
        Code: 'unknown_reference',
        Reason: 'names no record',
      },
    ]);
  });

  it('an import is rejected with line, field and code of each invalid reference, unknown column and malformed row', async () => {
    const entities = await importFile(
      admin,
      'resource=Entity&ids=own',
      'Name,EntityType,StatusId,CurrencyId,CountryCode\nA,customer,9,1,CH\nB,customer,1,999,CH\nC,customer,1,1,XX\nD,friend,1,,\n',
    );
    expect(
      entities.Errors.map(
        ({ Line, Field, Code }: Record<string, unknown>) => `${Line} ${Field} ${Code}`,
      ),
    ).to.deep.equal([
      '2 StatusId unknown_reference',
      '3 CurrencyId unknown_reference',
      '4 CountryCode unknown_reference',
      '5 EntityType not_allowed',
    ]);

    for (const [file, error] of [
      ['Code,Nmae,Name,Code\nA,B,C,D\n', '1 Nmae unknown, 1 Code ambiguous'],
      ['Code,Name\nA,"open\nB,C\n', '2  wrong_format'],
      ['', '1  required'],
    ]) {
      const { Applied, Errors, Refused } = await importFile(
        admin,
        'resource=UnitOfMeasure',
        file ?? '',
      );
      expect(Applied).to.equal(false);
      expect(Refused).to.equal(1);
      expect(
        Errors.map(
          ({ Line, Field, Code }: Record<string, unknown>) => `${Line} ${Field} ${Code}`,
        ).join(', '),
      ).to.equal(error);
    }
  });

  it('a header of more than 100 columns is refused with one error, whatever its cells are', async () => {
    const columns = (count: number) => `${Array.from({ length: count }, () => 'Name').join(',')}\n`;

    const short = await importFile(admin, 'resource=Currency', columns(100));
    expect(short.Errors).to.have.length(99);
    expect(new Set(short.Errors.map(({ Code }: { Code: string }) => Code))).to.deep.equal(
      new Set(['ambiguous']),
    );

    const tooMany = {
      Line: 1,
      Row: 1,
      Cell: '',
      Field: '',
      Value: '',
      Code: 'too_many',
      Reason: 'a file has at most 100 columns',
    };
    const tooLong = { ...tooMany, Code: 'wrong_format', Reason: 'the row is too long' };

    for (const [file, error] of [
      [columns(101), tooMany],
      [`${'x,'.repeat(20_000)}\n`, tooMany],
      ['x,'.repeat(420_000), tooLong],
      [','.repeat(2_000_000), tooLong],
    ] as const) {
      const { Applied, Errors } = await importFile(admin, 'resource=Currency', file);
      expect(Applied).to.equal(false);
      expect(Errors).to.deep.equal([error]);
    }
  });

  it('a row of commas up to 64 KiB is refused alone; a longer row, also of a single cell, makes the whole file refused', async () => {
    const rows = (row: string) => `Code,Name\nAAB,First\n${row}\nAAC,"Last; row"\n`;
    const query = 'resource=Currency&atomic=false&dryRun=true';

    for (const row of [`${','.repeat(50_000)}x`, `AAD,"${'x\n'.repeat(25_000)}"`]) {
      const { Created, Refused, Errors } = await importFile(admin, query, rows(row));
      expect(Created).to.equal(2);
      expect(Refused).to.equal(1);
      expect(Errors[0].Line).to.equal(3);
    }

    for (const row of [
      ','.repeat(2_000_000),
      'x'.repeat(100_000),
      `AAD,"${'""'.repeat(50_000)}"`,
    ]) {
      const { Applied, Errors } = await importFile(admin, query, rows(row));
      expect(Applied).to.equal(false);
      expect(Errors).to.deep.equal([
        {
          Line: 3,
          Row: 3,
          Cell: '',
          Field: '',
          Value: '',
          Code: 'wrong_format',
          Reason: 'the row is too long',
        },
      ]);
    }

    const empty = await importFile(admin, query, rows('\n'.repeat(200_000)));
    expect(empty.Created, 'empty lines are no row').to.equal(2);
    const blank = await importFile(admin, query, rows(','.repeat(50_000)));
    expect(blank.Created, 'a row without a value is no row').to.equal(2);
  });

  it('an import keeps its first 1,000 errors, however many a row has', async () => {
    const row = `Q,${'x'.repeat(300)},x,y,"${'0,'.repeat(200)}"\n`;
    const header = 'PromoCode,Name,DiscountType,DiscountValue,EntityIds\n';

    const { Applied, Refused, Errors } = await importFile(
      admin,
      'resource=Promotion&ids=own',
      header + row.repeat(300),
    );

    expect(Applied, JSON.stringify(Errors.slice(0, 3))).to.equal(false);
    expect(Refused, JSON.stringify(Errors.slice(0, 3))).to.equal(300);
    expect(Errors.length, JSON.stringify(Errors.slice(0, 3))).to.equal(1_000);
  });

  it('an import that would exceed the maximum size of a table changes nothing', async () => {
    const globex = await world.login(world.globex);
    await sql(
      world.globex,
      `update table_sizes set max_rows = 2000 where table_name = 'order_statuses'`,
    );

    const names = Array.from({ length: 9_000 }, (_, index) => `Status ${index} ${'x'.repeat(30)}`);
    const rejected = await importFile(
      globex,
      'resource=OrderStatus',
      `Name\n${names.join('\n')}\n`,
    );

    expect(rejected).to.include({ Applied: false, Created: 0 });
    expect(rejected.Errors.map(({ Code }: { Code: string }) => Code)).to.deep.equal([
      'limit_reached',
    ]);
    expect((await globex.get('/api/v1/OrderStatuses')).status).to.equal(404);
  });

  it('an import is visible through another process, although that one has cached the list', async () => {
    const { service, url } = await world.startAnotherServer();

    try {
      const other = admin.at(url);
      const { length } = (await other.get('/api/v1/Currency')).body;

      await importFile(admin, 'resource=Currency', 'Code,Name\nUSD,US Dollar\n');
      await eventually(
        async () => (await other.get('/api/v1/Currency')).body.length === length + 1,
        announcedMs,
      );
    } finally {
      await service.stop();
    }
  });

  const control = (text: string, values: unknown[] = []) =>
    controlSql<{ id?: string }>(world, text, values);
  const userIdOf = async (client: Client): Promise<number> => {
    const { userGuid } = (await client.get('/api/v1/auth/me')).body;
    const [user] = await control('select id from users where guid = ?', [userGuid]);
    return Number(user?.id);
  };
  it('only callers of scope All with the permission to write the resource may import it', async () => {
    const permissions = ['settings.write'];
    const self = await world.loginAs(world.acme, { permissions, scope: 'Self', entityId: 1 });
    const reader = await world.loginAs(world.acme, { permissions: ['full.read', 'full.manage'] });
    for (const client of [self, reader]) {
      const { status } = await client.post(
        '/api/v1/Imports?resource=Currency',
        'Code,Name\nGBP,Pound\n',
        csv,
      );
      expect(status).to.equal(403);
    }

    const writer = await world.loginAs(world.acme, { permissions });
    const report = await importFile(writer, 'resource=Currency', 'Code,Name\nGBP,Pound\n');
    expect(report).to.include({ Resource: 'Currency', Applied: true });
  });

  it('a body that is not CSV in UTF-8, too large or cut off is refused and changes nothing', async () => {
    const post = (body: string | Uint8Array, headers: Record<string, string>) =>
      admin.send('POST', '/api/v1/Imports?resource=Currency', body, headers);
    const before = await countAudit();

    const json = await admin.post('/api/v1/Imports?resource=Currency', {});
    expect(json.status).to.equal(415);
    expect(json.body.detail).to.equal('The body must be text/csv in UTF-8, not compressed.');
    expect(json.body.title, 'the title of all endpoints').to.not.include('json');
    expect((await post('x', { ...csv, 'Content-Encoding': 'gzip' })).status).to.equal(415);

    const utf16 = Buffer.from('Code,Name\nSEK,Krona\n', 'utf16le');
    const hasNul = 'The body has a NUL byte, as a text in UTF-16 has.';
    for (const [bytes, sentence] of [
      [Uint8Array.of(0x43, 0xff), 'The body is not valid UTF-8.'],
      [utf16, hasNul],
      [Buffer.concat([Buffer.of(0xff, 0xfe), utf16]), hasNul],
      [Buffer.from('Code,Name\nSEK,Kro\0na\n'), hasNul],
    ] as const) {
      const refused = await post(bytes, csv);
      expect(refused.status).to.equal(400);
      expect(refused.body.detail).to.match(
        new RegExp(`^${sentence} A spreadsheet saves it as "CSV UTF-8"`),
      );
    }

    const cut = send(admin, 100);
    cut.on('error', () => {}).write('Code,Name\n');
    cut.destroy();
    expect(await countAudit()).to.equal(before);
  });

  /** Opens a request that announces so many bytes. */
  function send(client: Client, length: number) {
    return request(`${world.url}/api/v1/Imports?resource=Currency`, {
      method: 'POST',
      headers: {
        ...csv,
        Authorization: `Bearer ${client.tokens?.accessToken}`,
        'Content-Length': length,
      },
    });
  }

  it('the caller, the permission and the announced length are checked before a byte of the file is read', async () => {
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });
    const stranger = await world.login(world.globex);
    const withoutSession = stranger.withToken('not.a.token');

    for (const [client, length, expected] of [
      [admin, 5 * 1024 * 1024 + 1, 413],
      [reader, 100, 403],
      [withoutSession, 100, 401],
    ] as const) {
      const sent = send(client, length);
      const status = await new Promise(resolve => {
        sent.on('response', response => resolve(response.statusCode)).on('error', () => {});
        sent.flushHeaders();
      });
      sent.destroy();
      expect(status).to.equal(expected);
    }
  });

  it('a file that arrives byte by byte is read as one that arrives at once', async () => {
    const file = 'Code;Name\nBYT;Byte by byte\n';
    const sent = send(admin, file.length);
    const answered = once(sent, 'response');
    for (const byte of file) {
      sent.write(byte);
      await nextTurn();
    }
    sent.end();

    const [response] = (await answered) as [IncomingMessage];
    expect(JSON.parse(await text(response))).to.include({ Applied: true, Created: 1, Refused: 0 });
  });

  it('a file of 5 MB is imported, one of a byte more is 413, and so are 10,001 rows, with the advice to send parts', async () => {
    const limit = 5 * 1024 * 1024;
    const sized = (bytes: number) => 'Code,Name\n'.padEnd(bytes, '\n');
    expect((await importFile(admin, 'resource=Currency', sized(limit))).Applied).to.equal(true);

    const { status, body } = await admin.post(
      '/api/v1/Imports?resource=Currency',
      sized(limit + 1),
      csv,
    );
    expect(status).to.equal(413);
    expect(body.detail).to.equal(
      'An import takes at most 5 MB: divide the file, and send the parts.',
    );

    const rows = (count: number) =>
      `Name\n${Array.from({ length: count }, (_, i) => `Status ${i}\n`).join('')}`;
    const tooMany = await admin.post('/api/v1/Imports?resource=OrderStatus', rows(10_001), csv);
    expect(tooMany.status).to.equal(413);
    expect(tooMany.body.detail).to.equal(
      'An import takes at most 10,000 rows: divide the file, and send the parts.',
    );
    const customers = Array.from({ length: 10_000 }, (_, i) => `Customer ${i},customer\n`).join('');
    const allowed = await importFile(
      admin,
      'resource=Entity&dryRun=true',
      `Name,EntityType\n${customers}`,
    );
    expect(allowed).to.include({ Rows: 10_000, Created: 10_000 });
  });

  const losses = [
    [
      'the permission',
      403,
      'forbidden',
      `update roles set permissions = '{full.read}' where id = (select role_id from users where id = ?)`,
    ],
    ['the account', 401, 'invalid_token', 'update users set disabled_at = now() where id = ?'],
    [
      'the scope All',
      403,
      'forbidden',
      `update users set scope = 'Self', entity_id = 1, entity_since = now() where id = ?`,
    ],
    [
      'the session',
      401,
      'invalid_token',
      `update sessions set revoked_at = now(), revoked_reason = 'ended' where user_id = ?`,
    ],
    [
      'the legacy token',
      401,
      'invalid_token',
      'update legacy_tokens set revoked_at = now() where user_id = ?',
    ],
    [
      'the tenant, which is suspended',
      403,
      'tenant_inactive',
      `update tenants set status = 'suspended' where id = (select tenant_id from users where id = ?)`,
    ],
  ] as const;
  /**
   * A client of an API client, which sends a legacy token of a user instead of the user's
   * access token.
   */
  async function withLegacyToken(sender: Client, userId: number): Promise<Client> {
    await control(`update tenants set features = '{legacyTokens}' where id = ?`, [world.acme.id]);
    const [user] = await control('select email as id from users where id = ?', [userId]);
    const { id, secret } = await addClient(
      world.installation,
      world.acme.slug,
      user?.id ?? '',
      'Price list of 2009',
    );
    const basic = { Authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}` };
    const { body } = await eventually(async () => {
      const response = await world.anonymous.get('/api/Data/GenerateToken', basic);
      return response.status === 200 && response;
    });
    return sender.withToken(body.token);
  }

  for (const [what, status, code, lose] of losses) {
    it(`an import is refused with ${status} and changes nothing when its sender loses ${what} before it ends`, async () => {
      const user = await world.loginAs(world.acme, { permissions: ['settings.write'] });
      const userId = await userIdOf(user);
      const sender = what === 'the legacy token' ? await withLegacyToken(user, userId) : user;
      const before = await countAudit();

      const sent = await withConnection(world.acme.adminUrl, async client => {
        await client.query('begin');
        await client.query('lock table currencies in exclusive mode');
        const sending = sender.post(
          '/api/v1/Imports?resource=Currency',
          'Code,Name\nLLL,Late\n',
          csv,
        );
        await eventually(async () => (await readLockWaiters(client)).length === 1);
        await control(lose, [userId]);
        const isRefused = async () =>
          (await sender.post('/api/v1/Imports?resource=Currency', '', csv)).status < 500;
        // while the process does not know, the tenant has another import, which is 503
        await eventually(isRefused);
        return { sending }; // the end of the connection rolls back
      });

      const refused = await sent.sending;
      expect(refused.status).to.equal(status);
      expect(refused.body.code).to.equal(code);
      await control(`update tenants set status = 'active' where id = ?`, [world.acme.id]);
      expect(await countAudit()).to.equal(before);
      expect(await sql(world.acme, `select from currencies where code = 'LLL'`)).to.have.length(0);
    });
  }
});
