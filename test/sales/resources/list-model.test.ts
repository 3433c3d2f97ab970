import { expect } from 'chai';
import fc from 'fast-check';
import pg from 'pg';
import type { Client } from '../../support/client.ts';
import { use } from '../../support/use.ts';
import { useLogin, useWorld } from '../../support/world.ts';

/** A row of the table `activities`, as the model stores it. */
interface Row {
  id: number;
  /** In microseconds since 1970. */
  createdAt: bigint;
  activityCode: number;
  userId: number | null;
  comment: string | null;
  screen: string | null;
}

const texts = [
  'a',
  'A',
  'ab',
  'ABC',
  'b%',
  'b_',
  '\\',
  '100%',
  'é',
  'É',
  'z\u{1F984}',
  '\u{FB01}',
  "o'k",
  ' x ',
  '日本',
];
const text = fc.oneof(
  fc.constantFrom(...texts),
  fc.constantFrom(...texts).chain(one => fc.constant(`${one}${one}`)),
);
const timestamp = fc
  .tuple(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 2_500 }))
  .map(([second, micros]) => 1_767_225_600_000_000n + BigInt(second) * 1_000_000n + BigInt(micros));
const newRow = fc.record({
  createdAt: timestamp,
  activityCode: fc.integer({ min: -2, max: 2 }),
  userId: fc.option(fc.integer({ min: 1, max: 3 })),
  comment: fc.option(text),
  screen: fc.option(text),
});
type NewRow = Omit<Row, 'id'>;

type Value = string | number | bigint | null;
const fieldValues: Record<string, (row: Row) => Value> = {
  Id: row => row.id,
  CreatedAt: row => row.createdAt,
  ActivityCode: row => row.activityCode,
  UserId: row => row.userId,
  Screen: row => row.screen,
};
const sortKey = fc.record({
  name: fc.constantFrom(...Object.keys(fieldValues)),
  descending: fc.boolean(),
});
const sort = fc.uniqueArray(sortKey, { selector: ({ name }) => name, minLength: 1, maxLength: 3 });

/** A parameter of the request, and the rows that it lets through. */
interface ModelFilter {
  parameters: [string, string][];
  matches: (row: Row) => boolean;
}
const iso = (micros: bigint): string => new Date(Number(micros / 1_000n)).toISOString();
const filter: fc.Arbitrary<ModelFilter> = fc.oneof(
  fc.uniqueArray(fc.integer({ min: -2, max: 2 }), { minLength: 1, maxLength: 3 }).map(codes => ({
    parameters: codes.map((code): [string, string] => ['filter[ActivityCode]', String(code)]),
    matches: ({ activityCode }: Row) => codes.includes(activityCode),
  })),
  fc
    .tuple(fc.constantFrom('gte', 'lte', 'gt', 'lt'), fc.integer({ min: 1, max: 3 }))
    .map(([operator, value]) => ({
      parameters: [[`filter[UserId][${operator}]`, String(value)] as [string, string]],
      matches: ({ userId }: Row) => userId !== null && compares(operator, compare(userId, value)),
    })),
  // The time as responses show it: microseconds within a millisecond do not count.
  fc.tuple(fc.constantFrom('gte', 'lte', 'gt', 'lt', ''), timestamp).map(([operator, value]) => ({
    parameters: [
      [`filter[CreatedAt]${operator && `[${operator}]`}`, iso(value)] as [string, string],
    ],
    matches: ({ createdAt }: Row) =>
      compares(operator, compare(createdAt / 1_000n, value / 1_000n)),
  })),
  fc.tuple(fc.constantFrom('prefix', 'contains', ''), text).map(([operator, value]) => ({
    parameters: [[`filter[Screen]${operator && `[${operator}]`}`, value] as [string, string]],
    matches: ({ screen }: Row) =>
      screen !== null &&
      (operator === 'prefix'
        ? screen.toLowerCase().startsWith(value.toLowerCase())
        : operator
          ? screen.toLowerCase().includes(value.toLowerCase())
          : screen === value.trim()),
  })),
  fc
    .tuple(fc.constantFrom('gte', 'lt', ''), fc.integer({ min: 1, max: 3 }))
    .map(([operator, value]) => ({
      parameters: [
        [`filter[UserId]${operator && `[${operator}]`}`, String(value)],
        ['filter[UserId][orNull]', 'true'],
      ] as [string, string][],
      matches: ({ userId }: Row) => userId === null || compares(operator, compare(userId, value)),
    })),
  fc.boolean().map(isNull => ({
    parameters: [['filter[Comment][null]', String(isNull)] as [string, string]],
    matches: ({ comment }: Row) => (comment === null) === isNull,
  })),
  text.map(value => ({
    parameters: [['q', value] as [string, string]],
    matches: ({ comment, screen }: Row) =>
      value
        .toLowerCase()
        .trim()
        .split(/\s+/)
        .every(word => [comment, screen].some(other => other?.toLowerCase().includes(word))),
  })),
);
const filters = fc.uniqueArray(filter, {
  // one filter of the user: `orNull` extends all filters of its field
  selector: ({ parameters }) => parameters[0]?.[0].replace(/(UserId\]).*/, '$1'),
  maxLength: 2,
});

function compares(operator: string, order: number): boolean {
  if (operator === 'gte') return order >= 0;
  if (operator === 'lte') return order <= 0;
  if (operator === 'gt') return order > 0;
  return operator === 'lt' ? order < 0 : order === 0;
}

/** Compares as PostgreSQL does: text by its bytes, null after every value. */
function compare(one: Value, other: Value): number {
  if (one === null || other === null) return Number(one === null) - Number(other === null);
  if (typeof one === 'string') {
    return Buffer.compare(Buffer.from(one), Buffer.from(other as string));
  }
  const [a, b] = [one, other] as [number, number]; // or both bigint
  return Number(a > b) - Number(a < b);
}

function compareRows(
  keys: { name: string; descending: boolean }[],
): (one: Row, other: Row) => number {
  const last = keys.at(-1)?.descending ?? true;
  const all = [...keys, { name: 'Id', descending: last }];
  return (one, other) => {
    for (const { name, descending } of all) {
      const order = compare(fieldValues[name]?.(one) ?? null, fieldValues[name]?.(other) ?? null);
      if (order !== 0) return descending ? -order : order;
    }
    return 0;
  };
}

describe('list pages beside a model in memory', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  let rows: Row[] = [];
  /** One connection for all changes: to open one takes longer than they do. */
  const session = use(async () => {
    const client = new pg.Client(world.acme.adminUrl);
    await client.connect();
    return Object.assign(client, { close: () => client.end() });
  });

  before(async () => {
    await session.query('alter table activities disable trigger append_only');
    await insert(fc.sample(newRow, { numRuns: 40, seed: 1 }));
  });

  async function insert(added: NewRow[]): Promise<void> {
    const inserted = await session.query<{ id: string }>(
      `insert into activities (created_at, activity_code, user_id, comment, screen, recorded_by, recorded_from)
       select timestamptz 'epoch' + (micros || ' microseconds')::interval, code, user_id, comment, screen, 1, ''
         from unnest($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::text[]) with ordinality
              as t (micros, code, user_id, comment, screen, n) order by n returning id`,
      [
        added.map(({ createdAt }) => String(createdAt)),
        added.map(({ activityCode }) => activityCode),
        added.map(({ userId }) => userId),
        added.map(({ comment }) => comment),
        added.map(({ screen }) => screen),
      ],
    );
    rows = [...rows, ...added.map((row, i) => ({ ...row, id: Number(inserted.rows[i]?.id) }))];
  }

  async function remove(ids: number[]): Promise<void> {
    await session.query('delete from activities where id = any ($1::bigint[])', [ids]);
    rows = rows.filter(({ id }) => !ids.includes(id));
  }

  it('all pages of a list together are the sorted and filtered list of the model, with any sort, filters and limit', async () => {
    await fc.assert(
      fc.asyncProperty(
        sort,
        filters,
        fc.integer({ min: 1, max: 25 }),
        async (keys, chosen, limit) => {
          const expected = rows
            .filter(row => chosen.every(({ matches }) => matches(row)))
            .sort(compareRows(keys));

          const walked: number[] = [];
          for await (const page of walk(admin, keys, chosen, limit)) walked.push(...page);

          expect(walked).to.deep.equal(expected.map(({ id }) => id));
        },
      ),
      { numRuns: 25 },
    );
  });

  it('the page at an offset has the records at that place of the model, with any sort, filters and limit', async () => {
    await fc.assert(
      fc.asyncProperty(
        sort,
        filters,
        fc.integer({ min: 1, max: 10 }),
        fc.integer({ min: 0, max: 45 }),
        async (keys, chosen, limit, offset) => {
          const expected = rows
            .filter(row => chosen.every(({ matches }) => matches(row)))
            .sort(compareRows(keys));

          const walked: number[] = [];
          const parameters = { offset: String(offset) };
          for await (const page of walk(admin, keys, chosen, limit, parameters)) {
            walked.push(...page);
          }

          expect(walked).to.deep.equal(expected.slice(offset).map(({ id }) => id));
        },
      ),
      { numRuns: 20 },
    );
  });

  it('rows that are inserted and deleted during a walk cause no other row to be skipped or repeated', async () => {
    await fc.assert(
      fc.asyncProperty(
        sort,
        fc.integer({ min: 3, max: 20 }),
        fc.array(newRow, { minLength: 1, maxLength: 4 }),
        fc.infiniteStream(fc.nat()),
        async (keys, limit, added, random) => {
          const steady = new Set(rows.map(({ id }) => id));
          const walked: number[] = [];

          for await (const page of walk(admin, keys, [], limit)) {
            walked.push(...page);
            if (rows.length > 150) continue;

            await insert(added);
            const removed = [
              random.next().value % rows.length,
              random.next().value % rows.length,
            ].map(i => rows[i]?.id ?? 0);
            removed.push(page.at(-1) ?? 0); // the row that the cursor was made of
            for (const id of removed) steady.delete(id);
            await remove(removed);
          }

          expect(new Set(walked).size).to.equal(walked.length);
          const expected = rows.filter(({ id }) => steady.has(id)).sort(compareRows(keys));
          expect(walked.filter(id => steady.has(id))).to.deep.equal(expected.map(({ id }) => id));
        },
      ),
      { numRuns: 6 },
    );
  });
});

/** The ids of each page, from the first one along the `Link` headers. */
async function* walk(
  client: Client,
  keys: { name: string; descending: boolean }[],
  chosen: ModelFilter[],
  limit: number,
  others: Readonly<Record<string, string>> = {},
): AsyncGenerator<number[]> {
  const parameters = new URLSearchParams([
    ...Object.entries(others),
    ['limit', String(limit)],
    ['sort', keys.map(({ name, descending }) => (descending ? `-${name}` : name)).join(',')],
    ...chosen.flatMap(({ parameters }) => parameters),
  ]);
  let path: string | undefined = `/api/v1/Activity?${parameters}`;
  for (let pages = 0; path !== undefined; pages++) {
    expect(pages, 'the walk does not end').to.be.below(300);
    const { status, body, headers }: Awaited<ReturnType<Client['get']>> = await client.get(path);
    expect(status, JSON.stringify(body)).to.equal(200);
    yield (body as { Id: number }[]).map(({ Id }) => Id);
    path = /^<([^>]*)>; rel="next"$/.exec(headers.get('link') ?? '')?.[1];
  }
}
