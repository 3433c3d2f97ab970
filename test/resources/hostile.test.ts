import { expect } from 'chai';
import fc from 'fast-check';
import { resources } from '../../src/resources/index.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { createWorld, sql, type World } from '../support/world.ts';
import { type Example, examples, referenced } from './examples.ts';
import { expectRefused, withField } from './expect.ts';
import type { References } from './field-values.ts';
import { deepTwice, notJsonObjects, oddJsonObjects } from './malformed-json.ts';
import { naughtyStrings } from './naughty-strings.ts';

const seed = 20_260_101;

/** Any JSON value, with a liking for what is nearly right. */
const anyValue = fc.oneof(
  { weight: 2, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  { weight: 3, arbitrary: fc.string({ unit: 'binary', maxLength: 60 }) },
  {
    weight: 1,
    arbitrary: fc.string({
      unit: fc.integer({ min: 0, max: 0xffff }).map(code => String.fromCharCode(code)),
      maxLength: 10,
    }),
  },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', minLength: 200, maxLength: 300 }) },
  {
    weight: 1,
    arbitrary: fc.string({ unit: fc.constantFrom(' ', '\t', '\n', '\u00a0', '\ufeff', 'a', '\0'), maxLength: 5 }),
  },
  { weight: 1, arbitrary: fc.constantFrom(...naughtyStrings) },
  { weight: 2, arbitrary: fc.integer() },
  { weight: 1, arbitrary: fc.integer({ min: -2, max: 12 }) },
  { weight: 1, arbitrary: fc.maxSafeInteger() },
  { weight: 1, arbitrary: fc.integer({ min: -100_000, max: 2_000_000 }).map(n => n / 10_000) },
  { weight: 1, arbitrary: fc.double({ noNaN: true, noDefaultInfinity: true }) },
  { weight: 1, arbitrary: fc.date({ noInvalidDate: true }).map(date => date.toISOString()) },
  { weight: 1, arbitrary: fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 3 }) },
  { weight: 1, arbitrary: fc.constantFrom('Percentage', 'Amount', 'supplier', 'customer', 'EUR', null, true, false) },
);

describe('hostile input', () => {
  let world: World;
  let admin: Client;
  let refs: References;
  let canary: object[];

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
    refs = {
      statusId: (await admin.post('/api/v1/EntityStatus', referenced.status)).body.Id,
      currencyId: (await admin.post('/api/v1/Currency', referenced.currency())).body.Id,
      countryCode: (await admin.post('/api/v1/Countries', referenced.country())).body.CountryCode,
      entityId: (await admin.post('/api/v1/Entities', referenced.entity)).body.Id,
    };
    canary = await rowsOf(world);
  });
  after(() => world.close());
  afterEach('no row of the other tenant has changed, nothing went wrong inside, and the service goes on', async () => {
    expect(await rowsOf(world)).to.deep.equal(canary);
    expect(world.logs.filter(line => JSON.parse(line).level >= 50)).to.deep.equal([]);
    expect((await admin.get('/api/v1/EntityStatus')).status).to.equal(200);
  });

  // Those that refer to others come first, as long as there is nothing to refer to but `refs`.
  const referring = ['Entity', 'Promotion'];
  const inOrder = resources.map(({ name }) => name).sort((a, b) => referring.indexOf(b) - referring.indexOf(a));
  for (const name of inOrder) {
    const { path, unique, fields, first } = examples[name] as Example;
    const valid = () => {
      const { StartsAt: _start, EndsAt: _end, ...body } = first(refs); // any moment is one when it stands alone
      return body;
    };
    for (const [field, { takes, stored }] of Object.entries(fields)) {
      it(`${name}.${field} stores any JSON value after the documented normalisation, or rejects it by name`, async () => {
        await fc.assert(
          fc.asyncProperty(anyValue, async value => {
            const json = JSON.stringify(value);
            fc.pre(!/"__proto__"\s*:/.test(json)); // refused whole, as below
            const sent: unknown = JSON.parse(json);
            const answer = await admin.post(path, withField(valid(), field, json));
            if (takes(sent, refs)) {
              if (field === unique && answer.body.code === 'duplicate') return; // it came up before
              expect([answer.status, answer.body[field]]).to.deep.equal([201, stored(sent, refs)]);
              const read = await admin.get(String(answer.headers.get('location')));
              expect(read.body).to.deep.equal(answer.body);
            } else expectRefused(answer, 400, 'validation_failed', [field]);
          }),
          { seed, numRuns: 60 },
        );
      });
    }
  }

  it('all invalid fields are named, and no valid one', async () => {
    for (const { name } of resources) {
      const { path, fields, first } = examples[name] as Example;
      const wrong = fc.subarray(Object.keys(fields), { minLength: 1 });
      await fc.assert(
        fc.asyncProperty(wrong, async names => {
          const body = { ...first(refs), ...Object.fromEntries(names.map(field => [field, { not: 'this' }])) };
          expectRefused(await admin.post(path, body), 400, 'validation_failed', names);
        }),
        { seed, numRuns: 10 },
      );
    }
  });

  describe('naughty strings', () => {
    const clean = (value: string): string => value.trim().normalize('NFC');
    /** Stored as it is, or refused; then read again where `place` says. */
    const tryAll = async (
      field: string,
      post: (value: string) => Promise<ApiResponse>,
      place?: (code: string) => string,
    ) => {
      let kept = 0;
      for (const value of naughtyStrings) {
        const answer = await post(value);
        const told = JSON.stringify(value).slice(0, 80);
        if (answer.status === 201) {
          kept++;
          expect(answer.body[field], told).to.equal(clean(value));
          const read = await admin.get(place?.(clean(value)) ?? String(answer.headers.get('location')));
          expect([read.status, read.body[field]], told).to.deep.equal([200, clean(value)]);
        } else {
          expect(answer.status, told).to.equal(400);
          if (answer.body.code !== 'duplicate') expectRefused(answer, 400, 'validation_failed', [field]);
        }
      }
      // Only the few strings that are invalid as a title or a code are rejected.
      expect(kept).to.be.above(naughtyStrings.length - 45);
    };

    it('a naughty title is stored or rejected by name', () =>
      tryAll('Title', Title => admin.post('/api/v1/EntityStatus', { Title })));
    it('a naughty comment is stored or rejected by name', () =>
      tryAll('Comment', Comment => admin.post('/api/v1/Activity', { ActivityCode: 1, Comment })));
    it('a naughty value is stored or rejected by name', () =>
      tryAll('Value', Value => admin.post('/api/v1/SystemOptions', { SystemOptionTypeId: 1, Value })));
    it('a naughty code is stored and found by its path, or rejected by name', () =>
      tryAll(
        'Code',
        Code => admin.post('/api/v1/TaxCodes', { Code, Name: 'Naughty', Rate: 1 }),
        code => `/api/v1/TaxCodes/code/${encodeURIComponent(code)}`,
      ));

    it('a naughty string in a path gets 404, and in a query causes no server error', async () => {
      const globex = await world.login(world.globex); // where nothing has been made
      for (const value of naughtyStrings) {
        // A lone surrogate has no form in a path; these bytes are what is nearest.
        const segment = value.isWellFormed() ? encodeURIComponent(value) : '%ED%A0%80';
        if (segment.length > 12_000 || segment === '') continue;
        for (const place of [
          `/api/v1/UnitsOfMeasure/code/${segment}`,
          `/api/v1/EntityStatus/x${segment}`,
          `/api/v1/Promotions/${segment}x/entity/1/used`,
          `/api/v1/Activity/x${segment}`,
        ]) {
          expectRefused(await globex.get(place), 404, 'not_found');
        }
        const answer = await globex.get(`/api/v1/AuditLog?key=${segment}&limit=1`);
        expect([200, 400], segment.slice(0, 80)).to.include(answer.status);
      }
    });
  });

  describe('bodies', () => {
    it('a body that is not a JSON object is rejected, and the response repeats no part of it', async () => {
      const before = (await admin.get('/api/v1/OrderStatuses')).body;
      for (const body of notJsonObjects) {
        const answer = await admin.post('/api/v1/OrderStatuses', body);
        expect([answer.status, answer.body.code], String(body).slice(0, 80)).to.deep.equal([400, 'malformed_json']);
        expect(answer.body).to.have.all.keys(
          ...['type', 'title', 'status', 'code', 'traceId', ...('detail' in answer.body ? ['detail'] : [])],
        );
      }
      expect((await admin.get('/api/v1/OrderStatuses')).body).to.deep.equal(before);
    });

    it('an unusual but valid JSON object is accepted', async () => {
      for (const body of oddJsonObjects) {
        const answer = await admin.post('/api/v1/OrderStatuses', body);
        expect([answer.status, answer.body.Name], body.slice(0, 80)).to.deep.equal([201, 'Odd']);
        expect(Object.keys(answer.body)).to.deep.equal(['Id', 'Name', 'Weighting', 'CreatedAt']);
      }
      expect(({} as Record<string, unknown>).polluted).to.equal(undefined);
      expect(({} as Record<string, unknown>).IsDeleted).to.equal(undefined);
    });

    it('a body with the same field twice, nested as deep as possible, is rejected by the name of the field', async () => {
      expectRefused(await admin.post('/api/v1/OrderStatuses', deepTwice), 400, 'validation_failed', ['Name']);
      const lists = deepTwice.replaceAll('ame"', '').replace('"N', '"EntityIds"').replace('"n', '"entityIds"');
      expectRefused(
        await admin.post('/api/v1/Promotions', withTail(examples.Promotion?.first(refs) ?? {}, lists)),
        400,
        'validation_failed',
        ['EntityIds'],
      );
    });

    it('a body with a field as null and as an infinite number is rejected by the name of the field', async () => {
      const { CurrencyId: _, ...body } = examples.Entity?.first(refs) ?? {};
      const twice = withField({ ...body, CurrencyId: null }, 'currencyId', '1e400');
      expectRefused(await admin.post('/api/v1/Entities', twice), 400, 'validation_failed', ['CurrencyId']);
    });

    it('a body of random bytes is rejected', async () => {
      await fc.assert(
        fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 200 }), async bytes => {
          expectRefused(await admin.post('/api/v1/OrderStatuses', bytes), 400, 'malformed_json');
        }),
        { seed, numRuns: 100 },
      );
    });

    it('a body with one character changed, omitted or doubled is parsed as it stands, or rejected', async () => {
      const valid = '{"Name":"Valid","Weighting":12}';
      const edit = fc.tuple(fc.nat(valid.length - 1), fc.string({ unit: 'binary', maxLength: 2 }));
      await fc.assert(
        fc.asyncProperty(edit, async ([at, text]) => {
          const body = valid.slice(0, at) + text + valid.slice(at + 1);
          const answer = await admin.post('/api/v1/OrderStatuses', body);
          const said = parsed(body);
          if (answer.status === 201) {
            expect(answer.body.Name).to.equal(clean(said?.Name ?? said?.name));
            expect(answer.body.Weighting).to.equal(said?.Weighting ?? said?.weighting ?? 0);
          } else expectRefused(answer, 400, said ? 'validation_failed' : 'malformed_json');
        }),
        { seed, numRuns: 200 },
      );
    });
  });
});

const clean = (value: unknown): string => String(value).trim().normalize('NFC');

function parsed(text: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A body without its EntityIds, followed by the members of another JSON object. */
function withTail({ EntityIds: _, ...body }: Record<string, unknown>, members: string): string {
  return `${JSON.stringify(body).slice(0, -1)},${members.slice(1)}`;
}

/** How many rows each table of the other tenant has. */
async function rowsOf({ globex }: World): Promise<object[]> {
  const tables = await sql<{ name: string }>(
    globex,
    `select quote_ident(tablename) as name from pg_tables where schemaname = 'public' order by 1`,
  );
  const counts = tables.map(({ name }) => `select '${name}' as name, count(*)::int from ${name}`);
  return sql(globex, counts.join(' union all '));
}
