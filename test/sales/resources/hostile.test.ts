import { expect } from 'chai';
import fc from 'fast-check';
import { resources } from '../../../src/sales/resources/index.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { sql, useLogin, useWorld, type World } from '../../support/world.ts';
import { createReferences, type Example, examples } from './examples.ts';
import { expectRefused, withField } from './expect.ts';
import type { References } from './field-values.ts';
import { deepTwice, notJsonObjects, oddJsonObjects } from './malformed-json.ts';
import { naughtyStrings } from './naughty-strings.ts';

const seed = 20_260_101;
const runs = Number(process.env.HOSTILE_RUNS ?? 10);

/** Any JSON value, with a preference for values that are almost valid. */
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
    arbitrary: fc.string({
      unit: fc.constantFrom(' ', '\t', '\n', '\u00a0', '\ufeff', 'a', '\0'),
      maxLength: 5,
    }),
  },
  { weight: 1, arbitrary: fc.constantFrom(...naughtyStrings) },
  { weight: 2, arbitrary: fc.integer() },
  { weight: 1, arbitrary: fc.integer({ min: -2, max: 12 }) },
  { weight: 1, arbitrary: fc.maxSafeInteger() },
  { weight: 1, arbitrary: fc.integer({ min: -100_000, max: 2_000_000 }).map(n => n / 10_000) },
  { weight: 1, arbitrary: fc.double({ noNaN: true, noDefaultInfinity: true }) },
  { weight: 1, arbitrary: fc.date({ noInvalidDate: true }).map(date => date.toISOString()) },
  { weight: 1, arbitrary: fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 3 }) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      'Percentage',
      'Amount',
      'supplier',
      'customer',
      'EUR',
      null,
      true,
      false,
    ),
  },
);

describe('hostile input', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  let refs: References;
  /**
   * The tenants of the resources with references, by the resource: the records of `refs` are
   * the only ones there to refer to.
   */
  const referring = new Map<string, { client: Client; refs: References }>();
  /** The row counts of the other tenant. */
  let otherRows: object[];

  before(async () => {
    refs = await createReferences(admin);
    // The records of the tests get ids that no value refers to.
    await sql(
      world.acme,
      `select setval(format('%I.%I', schemaname, sequencename)::regclass, 1000000000)
         from pg_sequences where schemaname = 'public'`,
    );
    otherRows = await rowsOf(world);
    for (const name of ['Entity', 'Promotion']) {
      const client = await world.login(await world.provision(name.toLowerCase()));
      referring.set(name, { client, refs: await createReferences(client) });
    }
  });
  afterEach(
    'no error was logged, another tenant has the same rows, and the service responds',
    async () => {
      expect(world.logs.filter(line => JSON.parse(line).level >= 50)).to.deep.equal([]);
      expect(await rowsOf(world)).to.deep.equal(otherRows);
      expect((await admin.get('/api/v1/EntityStatus')).status).to.equal(200);
    },
  );

  /** The seed of the values of a field: with one seed, all fields would get the same values. */
  let fieldSeed = seed;
  for (const { name } of resources) {
    const { path, unique, fields, defaults, first } = examples[name] as Example;
    for (const [field, { accepts, stored }] of Object.entries(fields)) {
      const ownSeed = fieldSeed++;
      it(`${name}.${field} stores any JSON value in its documented normal form, or refuses it by name`, async () => {
        const own = referring.get(name) ?? { client: admin, refs };
        const valid = () => {
          // a start or an end alone may be any time
          const { StartsAt: _start, EndsAt: _end, ...body } = first(own.refs);
          return body;
        };

        await fc.assert(
          fc.asyncProperty(anyValue, async value => {
            const json = JSON.stringify(value);
            fc.pre(!/"__proto__"\s*:/.test(json)); // the whole body is refused, see below
            const sent: unknown = JSON.parse(json);
            const response = await own.client.post(path, withField(valid(), field, json));

            if (accepts(sent, own.refs)) {
              // an earlier run has created it
              if (field === unique && response.body.code === 'duplicate') return;
              expect(response.status).to.equal(201);
              const byDefault = defaults[field] ?? response.body[field];
              const expected = sent === null ? byDefault : stored(sent, own.refs);
              expect(response.body[field]).to.deep.equal(expected);

              const read = await own.client.get(String(response.headers.get('location')));
              expect(read.body).to.deep.equal(response.body);
            } else {
              expectRefused(response, 400, 'validation_failed', [field]);
            }
          }),
          { seed: ownSeed, numRuns: runs },
        );
      });
    }
  }

  it('a body with several invalid fields gets an error for each of them and for no other field', async () => {
    for (const { name } of resources) {
      const { path, fields, first } = examples[name] as Example;
      const wrong = fc.subarray(Object.keys(fields), { minLength: 1 });

      await fc.assert(
        fc.asyncProperty(wrong, async names => {
          const body = {
            ...first(refs),
            ...Object.fromEntries(names.map(field => [field, { not: 'this' }])),
          };

          expectRefused(await admin.post(path, body), 400, 'validation_failed', names);
        }),
        { seed, numRuns: 10 },
      );
    }
  });

  describe('naughty strings', () => {
    const clean = (value: string): string => value.trim().normalize('NFC');
    /**
     * Expects that each string is stored and read again unchanged, from `pathOf` or `Location`,
     * or is refused.
     */
    const storeAll = async (
      values: readonly string[],
      field: string,
      post: (value: string) => Promise<ApiResponse>,
      pathOf?: (code: string) => string,
    ) => {
      let stored = 0;
      for (const value of values) {
        const response = await post(value);
        const description = JSON.stringify(value).slice(0, 80);

        if (response.status === 201) {
          stored++;
          expect(response.body[field], description).to.equal(clean(value));

          const read = await admin.get(
            pathOf?.(clean(value)) ?? String(response.headers.get('location')),
          );
          expect(read.status, description).to.equal(200);
          expect(read.body[field], description).to.deep.equal(clean(value));
        } else {
          expect(response.status, description).to.equal(400);
          if (response.body.code !== 'duplicate') {
            expectRefused(response, 400, 'validation_failed', [field]);
          }
        }
      }

      return stored;
    };
    /** Only a few of the strings are not allowed as a title or a code. */
    const minStored = naughtyStrings.length - 45;

    it('a naughty string is stored unchanged as a title, a comment or a value, or is refused', async () => {
      const fields = [
        ['Title', '/api/v1/EntityStatus', {}],
        ['Comment', '/api/v1/Activity', { ActivityCode: 1 }],
        ['Value', '/api/v1/SystemOptions', { SystemOptionTypeId: 1 }],
      ] as const;
      let stored = 0;

      for (const [third, [field, path, others]] of fields.entries()) {
        const values = naughtyStrings.filter((_, index) => index % 3 === third);
        stored += await storeAll(values, field, value =>
          admin.post(path, { ...others, [field]: value }),
        );
      }

      expect(stored).to.be.above(minStored);
    });

    it('a naughty string is stored unchanged as a code, and found by it in the path, or is refused', async () => {
      const stored = await storeAll(
        naughtyStrings,
        'Code',
        Code => admin.post('/api/v1/TaxCodes', { Code, Name: 'Naughty', Rate: 1 }),
        code => `/api/v1/TaxCodes/code/${encodeURIComponent(code)}`,
      );
      expect(stored).to.be.above(minStored);
    });

    it('a naughty string in a path or query string is a code that does not exist', async () => {
      const globex = await world.login(world.globex); // a tenant without records

      for (const [index, value] of naughtyStrings.entries()) {
        // A lone surrogate cannot be encoded in a path. These bytes are the nearest form.
        const segment = value.isWellFormed() ? encodeURIComponent(value) : '%ED%A0%80';
        if (segment.length > 12_000 || segment === '') continue;

        const paths = [
          `/api/v1/UnitsOfMeasure/code/${segment}`,
          `/api/v1/EntityStatus/x${segment}`,
          `/api/v1/Promotions/${segment}x/entity/1/used`,
        ];

        expectRefused(await globex.get(paths[index % paths.length] ?? ''), 404, 'not_found');
        const response = await globex.get(`/api/v1/AuditLog?key=${segment}&limit=1`);
        expect([200, 400], segment.slice(0, 80)).to.include(response.status);
      }
    });
  });

  describe('bodies', () => {
    it('a body that is not a JSON object is malformed_json, and the response repeats nothing of it', async () => {
      const before = (await admin.get('/api/v1/OrderStatuses')).body;

      for (const body of notJsonObjects) {
        const response = await admin.post('/api/v1/OrderStatuses', body);

        expect(response.status, String(body).slice(0, 80)).to.equal(400);
        expect(response.body.code, String(body).slice(0, 80)).to.equal('malformed_json');
        expect(response.body).to.have.all.keys(
          'type',
          'title',
          'status',
          'code',
          'traceId',
          ...('detail' in response.body ? ['detail'] : []),
        );
      }

      expect((await admin.get('/api/v1/OrderStatuses')).body).to.deep.equal(before);
    });

    it('an unusual but valid JSON object is read', async () => {
      for (const body of oddJsonObjects) {
        const response = await admin.post('/api/v1/OrderStatuses', body);
        expect(response.status, body.slice(0, 80)).to.equal(201);
        expect(response.body.Name, body.slice(0, 80)).to.equal('Odd');
        expect(Object.keys(response.body)).to.deep.equal(['Id', 'Name', 'Weighting', 'CreatedAt']);
      }
      expect(({} as Record<string, unknown>).polluted).to.equal(undefined);
      expect(({} as Record<string, unknown>).IsDeleted).to.equal(undefined);
    });

    it('a body with two spellings of a deeply nested field is refused with an error for the field', async () => {
      expectRefused(
        await admin.post('/api/v1/OrderStatuses', deepTwice),
        400,
        'validation_failed',
        ['Name'],
      );

      const lists = deepTwice
        .replaceAll('ame"', '')
        .replace('"N', '"EntityIds"')
        .replace('"n', '"entityIds"');
      expectRefused(
        await admin.post(
          '/api/v1/Promotions',
          withTail(examples.Promotion?.first(refs) ?? {}, lists),
        ),
        400,
        'validation_failed',
        ['EntityIds'],
      );
    });

    it('a body with a field as null and as an infinite number is refused with an error for the field', async () => {
      const { CurrencyId: _, ...body } = examples.Entity?.first(refs) ?? {};
      const twice = withField({ ...body, CurrencyId: null }, 'currencyId', '1e400');
      expectRefused(await admin.post('/api/v1/Entities', twice), 400, 'validation_failed', [
        'CurrencyId',
      ]);
    });

    it('a body of random bytes is refused as malformed_json', async () => {
      await fc.assert(
        fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 200 }), async bytes => {
          expectRefused(await admin.post('/api/v1/OrderStatuses', bytes), 400, 'malformed_json');
        }),
        { seed, numRuns: runs },
      );
    });

    it('a body with one character replaced is read as the JSON that it then is, or is refused', async () => {
      const valid = '{"Name":"Valid","Weighting":12}';
      const edit = fc.tuple(fc.nat(valid.length - 1), fc.string({ unit: 'binary', maxLength: 2 }));

      await fc.assert(
        fc.asyncProperty(edit, async ([at, text]) => {
          const body = valid.slice(0, at) + text + valid.slice(at + 1);
          const response = await admin.post('/api/v1/OrderStatuses', body);
          const json = parsed(body);

          if (response.status === 201) {
            expect(response.body.Name).to.equal(clean(json?.Name ?? json?.name));
            expect(response.body.Weighting).to.equal(json?.Weighting ?? json?.weighting ?? 0);
          } else {
            expectRefused(response, 400, json ? 'validation_failed' : 'malformed_json');
          }
        }),
        { seed, numRuns: 4 * runs },
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

/**
 * Returns a JSON body without its EntityIds, followed by the members of another JSON object.
 */
function withTail({ EntityIds: _, ...body }: Record<string, unknown>, members: string): string {
  return `${JSON.stringify(body).slice(0, -1)},${members.slice(1)}`;
}

/** Returns the number of rows of each table of the other tenant. */
async function rowsOf({ globex }: World): Promise<object[]> {
  const tables = await sql<{ name: string }>(
    globex,
    `select quote_ident(tablename) as name from pg_tables where schemaname = 'public' order by 1`,
  );
  const counts = tables.map(({ name }) => `select '${name}' as name, count(*)::int from ${name}`);
  return sql(globex, counts.join(' union all '));
}
