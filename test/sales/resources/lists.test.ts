import { expect } from 'chai';
import type { Client } from '../../support/client.ts';
import { sql, useLogin, useWorld, type World } from '../../support/world.ts';

/** Texts that JSON has to escape, or that an encoder could confuse. */
const texts = [
  'tab\tline\n"quoted" \\ back / slash',
  '\u0001\b\f\r\u001f\u007f',
  '\u2028\u2029',
  'Ålesund 日本 🦄',
  "</script>'--",
];

describe('lists and records as JSON', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  let token: string;

  before(async () => {
    token = await tokenOf(world, admin);

    await sql(
      world.acme,
      `insert into currencies (code, name, symbol) values ('EUR', 'Euro', null), ('DKK', 'Krone', 'kr')`,
    );
    await sql(
      world.acme,
      `insert into entities (name, entity_type) values ('One', 'customer'), ('Two', 'supplier')`,
    );

    for (const [i, text] of texts.entries()) {
      await sql(
        world.acme,
        'insert into system_options (system_option_type_id, value, is_active, created_at) values ($1, $2, $3, $4)',
        [
          -i,
          text,
          i % 2 === 0,
          [
            '2026-01-31T12:00:00.123999Z',
            '0001-01-01T00:00:00Z',
            '9999-12-31T23:59:59.999999Z',
            '12026-06-01T00:00:00.1Z',
            '0044-03-15 10:00:00.5+00 BC',
          ][i],
        ],
      );
      await sql(world.acme, 'insert into tax_codes (code, name, rate) values ($1, $2, $3)', [
        `T${i}`,
        text,
        ['0', '20', '0.0001', '99.5', '7.1250'][i],
      ]);
      await sql(
        world.acme,
        `insert into promotions (promo_code, name, description, discount_type, discount_value, entity_ids, starts_at)
           values ($1, $2, $3, 'Percentage', $4, $5, $6)`,
        [
          `P${i}`,
          text,
          i % 2 ? text : null,
          ['0.0001', '100', '12.3400', '1e1', '5'][i],
          [[], [1], [1, 2]][i % 3],
          i % 2 ? new Date() : null,
        ],
      );
      await admin.post('/api/v1/Activity', {
        ActivityCode: i,
        Comment: text.replace(/\p{Cc}/gu, ''),
      });
    }
  });

  const textOf = (path: string): Promise<string> => readText(world, token, path);

  for (const name of [
    'SystemOptions',
    'TaxCodes',
    'Promotions',
    'Currency',
    'EntityStatus',
    'Entities',
    'Activity',
  ]) {
    it(`the list of ${name} has, byte for byte, the records that GET returns one by one`, async () => {
      const path = `/api/v1/${name}`;
      const list = await textOf(path);
      const ids = (JSON.parse(list) as { Id: number }[]).map(({ Id }) => Id);
      expect(ids.length).to.be.above(1);
      const records = await Promise.all(ids.map(id => textOf(`${path}/${id}`)));
      expect(list).to.equal(`[${records.join(',')}]`);
    });
  }

  for (const [name, order] of [
    ['Entities', 'Id'],
    ['Activity', '-CreatedAt,-Id'],
    ['AuditLog', '-Id'],
    ['AuditLog?resource=User', '-Id'],
    ['Users', 'Id'],
  ] as const) {
    it(`the first page of ${name} has, byte for byte, the records of a list with parameters`, async () => {
      const path = `/api/v1/${name}`;
      const page = await textOf(path);

      const sorted = await textOf(`${path}${path.includes('?') ? '&' : '?'}sort=${order}&limit=20`);

      expect((JSON.parse(page) as unknown[]).length).to.be.above(0);
      expect(page).to.equal(sorted);
    });
  }
});

describe('a list of several megabytes', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('a list of several megabytes is complete, and its ETag is that of its bytes', async () => {
    await sql(
      world.acme,
      `set session_replication_role = replica;
       insert into system_options (system_option_type_id, value)
       select 9, repeat('🦄"', 50) || i from generate_series(1, 10000) i`,
    );

    const path = '/api/v1/SystemOptions';
    const list = await readText(world, await tokenOf(world, admin), path);
    const records = JSON.parse(list) as { Id: number; Value: string }[];

    expect(records).to.have.length(10_000);
    expect(records.at(-1)?.Value).to.equal(`${'🦄"'.repeat(50)}10000`);
    expect(list).to.equal(JSON.stringify(records));

    const uncached = { 'Cache-Control': 'no-cache' };
    const [first, ...others] = await Promise.all(
      Array.from({ length: 3 }, () => admin.get(path, uncached)),
    );
    for (const { headers } of others) {
      expect(headers.get('etag')).to.equal(first?.headers.get('etag'));
    }
  });
});

async function tokenOf({ acme }: World, client: Client): Promise<string> {
  const login = await client.post('/api/v1/auth/login', acme.admin, { 'X-Tenant': acme.guid });
  return login.body.accessToken;
}

/** Returns the body of a response as it is sent. */
async function readText({ url }: World, token: string, path: string): Promise<string> {
  const headers = { Authorization: `Bearer ${token}`, 'Cache-Control': 'no-cache' };
  return (await fetch(url + path, { headers })).text();
}
