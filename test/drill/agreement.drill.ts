import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import ts from 'typescript';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { options } = ts.parseJsonConfigFileContent(
  ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile).config,
  ts.sys,
  root,
);

/** A resource of an entity with the columns of currencies, and the given view and contracts. */
function resourceSource({ view = '', create = '' }): string {
  return `
    import { defineEntity, p } from '@mikro-orm/postgresql';
    import { z } from 'zod';
    import { int32, timestamp } from '../../src/lib/http/request/fields.ts';
    import { defineResource } from '../../src/sales/resources/rest/define-resource.ts';

    const CurrencySchema = defineEntity({
      name: 'Currency',
      tableName: 'currencies',
      properties: {
        id: p.integer().primary(),
        code: p.text(),
        name: p.text(),
        symbol: p.text().nullable(),
        decimalPlaces: p.integer().default(2),
        deletedAt: p.datetime().nullable(),
        createdAt: p.datetime().defaultRaw('now()'),
      },
    });
    class Currency extends CurrencySchema.class {}
    CurrencySchema.setClass(Currency);

    defineResource({
      name: 'Currency',
      path: '/currencies',
      description: '',
      entity: Currency,
      key: { id: 1 },
      access: { read: 'user', write: 'settings.write' },
      orderBy: { code: 'asc' },
      search: ['code'],
      view: z.object({ Id: int32(), CreatedAt: timestamp(), ${view} }),
      create: z.object({ Code: z.string(), Symbol: z.string().nullable(), ${create} }),
      fields: {} as never,
      example: { Code: 'EUR', Symbol: null } as never,
      onMissing: 'not_found',
    });
  `;
}

/** Returns the output of the compiler for each of the sources. */
function compile(sources: string[]): string[] {
  const paths = sources.map((_, i) => join(root, `test/drill/agreement-${i}.ts`));
  const host = ts.createCompilerHost(options);
  const { fileExists, readFile } = host;
  host.fileExists = path => paths.includes(path) || fileExists(path);
  host.readFile = path => sources[paths.indexOf(path)] ?? readFile(path);
  const program = ts.createProgram(paths, options, host);
  return paths.map(path => {
    const source = program.getSourceFile(path);
    return ts.formatDiagnostics(
      [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)],
      {
        getCanonicalFileName: name => name,
        getCurrentDirectory: () => root,
        getNewLine: () => '\n',
      },
    );
  });
}

const view = 'the view does not agree with the entity in';
const contract = 'the contract does not agree with the entity in';

const disagreements: [
  description: string,
  changes: Parameters<typeof resourceSource>[0],
  messages: string[],
][] = [
  [
    'a view field of another type than its property',
    { view: 'Name: z.number()' },
    [`${view} Name`],
  ],
  [
    'a view field that the entity does not have',
    { view: 'Colour: z.string()' },
    [`${view} Colour`],
  ],
  [
    'a view field that is not nullable while the property is',
    { view: 'Symbol: z.string()' },
    [`${view} Symbol`],
  ],
  [
    'a view field that is a date',
    { view: 'DeletedAt: z.date().nullable()' },
    [`${view} DeletedAt`],
  ],
  [
    'every view field that disagrees',
    { view: 'Name: z.number(), Code: z.boolean(), Colour: z.string()' },
    [`${view} Name`, `${view} Code`, `${view} Colour`],
  ],
  [
    'a contract field of another type than its property',
    { create: 'DecimalPlaces: z.string()' },
    [`${contract} DecimalPlaces`],
  ],
  [
    'a contract field that the entity does not have',
    { create: 'Colour: z.string()' },
    [`${contract} Colour`],
  ],
  [
    'a contract field that is nullable while the property is not',
    { create: 'Name: z.null()' },
    [`${contract} Name`],
  ],
];

describe('drill: agreement of entity, view and contract', () => {
  let messages: string[];

  before(() => {
    messages = compile([{}, ...disagreements.map(([, changes]) => changes)].map(resourceSource));
  });

  it('a resource compiles when its entity, view and contracts agree', () => {
    expect(messages[0]).to.equal('');
  });

  for (const [i, [description, , expected]] of disagreements.entries()) {
    it(`the compiler names ${description}`, () => {
      const message = messages[i + 1] ?? '';
      for (const text of expected) expect(message).to.include(text);
      const named = new Set(message.match(/does not agree with the entity in \w+/g));
      expect(named.size).to.equal(expected.length);
      expect(message.match(/error TS/g)).to.have.length(1);
    });
  }
});
