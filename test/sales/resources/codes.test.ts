import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import fc from 'fast-check';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { createReferences, examples, requiredOnly } from './examples.ts';
import { expectRefused } from './expect.ts';
import type { References } from './field-values.ts';

const dottedI = '\u0130'; // İ

/** The rule for equal codes in JavaScript: lower case, letter by letter; `İ` stays as it is. */
const key = (code: string): string =>
  [...code].map(letter => (letter === dottedI ? letter : letter.toLowerCase())).join('');

/**
 * Letters with special cases: dotted and dotless i, final sigma, Kelvin sign, sharp s, a
 * capital of two letters.
 */
const specialLetters = [
  'I',
  'i',
  dottedI,
  '\u0131',
  '\u0307',
  'Σ',
  'σ',
  'ς',
  '\u212A',
  'K',
  'k',
  'ẞ',
  'ß',
  'Ǆ',
  'ǅ',
  'ǆ',
  '-',
];
const anyCode = fc
  .array(fc.constantFrom(...specialLetters), { minLength: 1, maxLength: 5 })
  .map(all => all.join(''));

describe('codes', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  let refs: References;

  before(async () => {
    refs = await createReferences(admin);
  });

  for (const [name, example] of Object.entries(examples)) {
    const { path, unique, key: idField, lookup } = example;
    if (!unique || name === 'Currency') continue; // a currency code has the letters A to Z only
    it(`two ${name} records can have codes that differ only in I and İ, and each is found by its own`, async () => {
      const bodyOf = (code: string) => ({
        ...requiredOnly(example, example.first(refs)),
        [unique]: code,
      });

      const plain = await admin.post(path, bodyOf('XIx'));
      const dotted = await admin.post(path, bodyOf(`X${dottedI}x`));
      expect(plain.status).to.equal(201);
      expect(dotted.status).to.equal(201);

      for (const taken of ['XIX', 'xix', `x${dottedI}X`]) {
        expectRefused(await admin.post(path, bodyOf(taken)), 400, 'duplicate');
      }

      if (!lookup) return;
      const find = async (code: string) =>
        (await admin.get(`${path}/code/${encodeURIComponent(code)}`)).body[idField];
      expect(await find('xix')).to.equal(plain.body[idField]);
      expect(await find(`x${dottedI}x`)).to.equal(dotted.body[idField]);
    });
  }

  for (const [name, example] of Object.entries(examples)) {
    const { path, unique } = example;
    if (!unique) continue;

    it(`a code of ${name} has no character that shows nothing, by which it would look like another code`, async () => {
      for (const character of [
        '\u00ad',
        '\u180e',
        '\u200b',
        '\u200f',
        '\u2060',
        '\u202e',
        '\u3164',
      ]) {
        for (const code of [`A${character}BC`, `ABC${character}`]) {
          const body = { ...requiredOnly(example, example.first(refs)), [unique]: code };
          const refused = await admin.post(path, body);

          expect(refused.status, JSON.stringify(code)).to.equal(400);
          expect(Object.keys(refused.body.errors)).to.deep.equal([unique]);
        }
      }
    });
  }

  it('a record that had an invisible character in its code before is found, changed and deleted', async () => {
    const path = '/api/v1/UnitsOfMeasure';
    const find = (code: string) => admin.get(`${path}/code/${encodeURIComponent(code)}`);
    const insert = async (code: string): Promise<void> => {
      await sql(world.acme, `insert into units_of_measure (code, name) values ($1, 'Old')`, [code]);
    };

    await insert('OLD\u200b');
    await insert('OLDER\u200b');
    const { body: old } = await find('OLD\u200b');
    const changed = await admin.put(`${path}/${old.Id}`, { Code: 'OLD', Name: 'New' });
    const imported = await admin.post(
      '/api/v1/Imports?resource=UnitOfMeasure&mode=upsert',
      'Code,Name\nOLDER\u200b,New\n',
      { 'Content-Type': 'text/csv' },
    );
    const deleted = await admin.delete(`${path}/${(await find('OLDER\u200b')).body.Id}`);

    expect(changed.status).to.equal(200);
    expect((await find('OLD')).body.Name).to.equal('New');
    expect(imported.body.Errors[0]).to.include({ Line: 2, Field: 'Code', Code: 'invalid_text' });
    expect(deleted.status).to.equal(204);
  });

  it('the database and JavaScript agree on the lower case of every letter that both know', async () => {
    const letters = await sql<{ letter: string; key: string }>(
      world.acme,
      `select chr(n) as letter, code_key(chr(n)) as key from generate_series(1, x'1ffff'::int) n
        where n not between x'd800'::int and x'dfff'::int and unicode_assigned(chr(n))`,
    );
    const known = letters.filter(({ letter }) => letter !== dottedI && !/\p{Cn}/u.test(letter));
    expect(known.filter(row => row.key !== row.letter)).to.have.length.greaterThan(1_400);
    expect(known.filter(row => row.key !== key(row.letter))).to.deep.equal([]);
  });

  it('two codes have the same key in the database exactly when they have the same letters in lower case', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(anyCode, anyCode), { minLength: 200, maxLength: 200 }),
        async pairs => {
          const rows = await sql<{ same: boolean }>(
            world.acme,
            'select code_key(a) = code_key(b) as same from unnest($1::text[], $2::text[]) with ordinality t (a, b, n) order by n',
            [pairs.map(([a]) => a), pairs.map(([, b]) => b)],
          );

          expect(rows.map(({ same }) => same)).to.deep.equal(
            pairs.map(([a, b]) => key(a) === key(b)),
          );
        },
      ),
      { seed: 1, numRuns: 20 },
    );
  });

  const locales = {
    'builtin C.UTF-8': `locale_provider builtin builtin_locale 'C.UTF-8' locale 'C'`,
    'ICU und': `locale_provider icu icu_locale 'und' locale 'C'`,
    'ICU tr': `locale_provider icu icu_locale 'tr' locale 'C'`,
    'libc C': `locale_provider libc locale 'C'`,
  };
  for (const [locale, options] of Object.entries(locales)) {
    it(`two codes that differ in lower case have different keys in a database with the locale ${locale}`, async () => {
      const [source] = await sql<{ text: string }>(
        world.acme,
        `select pg_get_functiondef('code_key'::regproc) as text`,
      );

      const codesUpTo = (length: number): string[] =>
        length === 0
          ? ['']
          : codesUpTo(length - 1).flatMap(code => [code, ...specialLetters.map(one => code + one)]);
      const codes = [...new Set(codesUpTo(3))];

      const name = `locale_${randomBytes(5).toString('hex')}`;
      await withConnection(postgresUrl(), client =>
        client.query(`create database ${name} template template0 encoding 'UTF8' ${options}`),
      );

      try {
        const merged = await withConnection(databaseUrl(postgresUrl(), name), async client => {
          await client.query(String(source?.text));
          const query = `
            select code_key(code) as key, array_agg(distinct lower(code)) as codes from unnest($1::text[]) t (code)
             group by 1 having count(distinct lower(code)) > 1`;
          return (await client.query(query, [codes])).rows;
        });

        expect(merged).to.deep.equal([]);
      } finally {
        await withConnection(postgresUrl(), client =>
          client.query(`drop database ${name} with (force)`),
        );
      }
    });
  }

  it('a lookup by code uses the unique index', async () => {
    const plan = await withConnection(world.acme.adminUrl, async client => {
      await client.query('set enable_seqscan = off');
      await client.query('set plan_cache_mode = force_generic_plan');

      await client.query(
        'prepare find (text) as select 1 from tax_codes where code_key(code) = code_key($1)',
      );
      return (await client.query<{ 'QUERY PLAN': string }>(`explain execute find('x')`)).rows;
    });

    const text = plan.map(row => row['QUERY PLAN']).join('\n');
    expect(text).to.match(/Index.* Scan using tax_codes_code_unique/);
    expect(text, 'PostgreSQL puts the body in the place of the call').not.to.include('code_key');
  });
});
