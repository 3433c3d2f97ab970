import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect } from 'chai';
import { z } from 'zod';
import {
  decimal,
  int32,
  longId,
  optionalText,
  timestamp,
} from '../../../src/lib/http/request/fields.ts';
import { listField, readValue } from '../../../src/lib/http/request/list-parameters/list-field.ts';
import { bodyOf, readColumns } from '../../../src/sales/imports/import-columns.ts';
import type { ResourceDefinition } from '../../../src/sales/resources/rest/resource-definition.ts';
import { toSchema } from '../../../src/service/pages/openapi-schemas.ts';

/** The kinds of fields that a resource may have, each with a value, as JSON and as a cell. */
const kinds: Record<string, { schema: z.ZodType; value: unknown; cell: string }> = {
  Text: { schema: optionalText({ max: 50 }), value: 'a b', cell: 'a b' },
  PlainText: { schema: z.string(), value: 'x', cell: 'x' },
  Number: { schema: z.number(), value: -1.5, cell: '-1.5' },
  BoundedNumber: { schema: z.number().min(0).max(9), value: 2.25, cell: '2.25' },
  Decimal: { schema: decimal({ min: 0, max: 100 }), value: 19.6, cell: '19.6' },
  Integer: { schema: z.int(), value: 7, cell: '7' },
  BoundedInteger: { schema: z.int().min(1).max(9), value: 7, cell: '7' },
  Boolean: { schema: z.boolean(), value: false, cell: 'FALSE' },
  Time: { schema: timestamp(), value: '2026-01-31T12:00:00Z', cell: '2026-01-31T12:00:00Z' },
  Choice: { schema: z.enum(['one', 'two']), value: 'two', cell: 'two' },
  Reference: { schema: int32(), value: 3, cell: '3' },
  LongReference: { schema: longId(), value: 3, cell: '3' },
  List: { schema: z.array(z.int().min(1)), value: [1, 2], cell: '[1,2]' },
  UnboundedList: { schema: z.array(z.number()), value: [4], cell: '4' },
};

/** The ways in which a contract has a field. */
const ways: Record<string, (schema: z.ZodType, value: unknown) => z.ZodType> = {
  required: schema => schema,
  optional: schema => schema.optional(),
  'with a default': (schema, value) => schema.default(value),
  nullable: schema => schema.nullable(),
  'nullable and optional': schema => schema.nullable().optional(),
  'optional and nullable': schema => schema.optional().nullable(),
  'nullable, with the default null': schema => schema.nullable().default(null),
  'nullable, with a default': (schema, value) => schema.nullable().default(value),
  'a union with null': schema => z.union([schema, z.null()]),
};

describe('kinds of fields', () => {
  /** Reads the cells of a row as an import does, by the contract of its resource. */
  function importRow(schema: z.ZodType, cell: string): unknown {
    const create = z.object({ Field: schema });
    const resource = { create, view: create, key: {} } as unknown as ResourceDefinition;
    const record = { line: 1, row: 1, delimiter: ',' as const };

    const columns = readColumns(resource, { ...record, cells: ['Field'] });
    if (Array.isArray(columns)) throw new Error(JSON.stringify(columns));
    return create.parse(bodyOf(columns, [cell])).Field;
  }

  for (const [way, contractOf] of Object.entries(ways)) {
    it(`a field of each kind that is ${way} is imported from CSV as JSON takes it`, () => {
      for (const [kind, { schema, value, cell }] of Object.entries(kinds)) {
        const contract = contractOf(schema, value);

        const expected = z.object({ Field: contract }).parse({ Field: value }).Field;
        expect(importRow(contract, cell), kind).to.deep.equal(expected);
      }
    });

    it(`an empty cell of a field of each kind that is ${way} is null where null is taken, else no value`, () => {
      for (const [kind, { schema, value }] of Object.entries(kinds)) {
        const contract = contractOf(schema, value);
        const isList = kind.endsWith('List');
        const body = contract.safeParse(null).success
          ? { Field: null }
          : isList
            ? { Field: [] }
            : {};

        const expected = z.object({ Field: contract }).safeParse(body);
        if (expected.success) {
          expect(importRow(contract, ''), kind).to.deep.equal(expected.data.Field);
        } else {
          expect(() => importRow(contract, ''), kind).to.throw(z.ZodError);
        }
      }
    });
  }

  it('the document accepts a value of each kind of field, and null where the contract takes it', () => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false });

    for (const [way, contractOf] of Object.entries(ways)) {
      for (const [kind, { schema, value }] of Object.entries(kinds)) {
        const contract = z.object({ Field: contractOf(schema, value) });
        const isValid = ajv.compile(toSchema(contract, 'input'));

        for (const body of [{ Field: value }, { Field: null }, {}, { Field: {} }]) {
          const isTaken = contract.safeParse(body).success;
          expect(isValid(body), `${kind}, ${way}, ${JSON.stringify(body)}`).to.equal(isTaken);
        }
      }
    }
  });

  it('a field of each kind can be filtered by its value, a list only of whole numbers, nullable or not', () => {
    for (const [kind, { schema, value, cell }] of Object.entries(kinds)) {
      for (const contract of [schema, schema.nullable()]) {
        const options = { isSortable: true, isComputed: false };
        const field = listField('Field', contract, options);

        if (kind === 'UnboundedList') {
          expect(field, kind).to.equal(undefined);
        } else {
          expect(field?.isNullable, kind).to.equal(contract !== schema);
          expect(field?.isList, kind).to.equal(Array.isArray(value));
          const [text] = Array.isArray(value) ? value : [kind === 'Boolean' ? 'false' : cell];
          const read = field && readValue(field, String(text));
          expect(read, kind).to.have.property('value');
        }
      }
    }
  });
});
