import type { Permission } from '../../../src/control/permissions.ts';
import type { Client } from '../../support/client.ts';
import {
  bool,
  countryCode,
  currencyCode,
  decimal,
  entityIds,
  type Field,
  idOf,
  int,
  moment,
  oneOf,
  type References,
  text,
  uniqueCode,
  uniqueCurrencyCode,
} from './field-values.ts';

type Body = Record<string, unknown>;

/**
 * A resource as the contract tests know it. Nothing is taken from the definition of the
 * resource.
 */
export interface Example {
  path: string;
  /**
   * The field that identifies a record in paths (`/{Id}` or `/code/{code}`) and in the audit
   * log.
   */
  key: string;
  /** The field with a unique code. */
  unique?: string;
  /** A record is also available at `/code/{code}`. */
  lookup?: boolean;
  read: Permission | 'user';
  write: Permission;
  /** The problem of PUT and DELETE for a record that does not exist. */
  missingProblem: [status: number, code: string];
  /** The fields that order the list. */
  orderBy: string[];
  /** The list is served in pages and may be empty. */
  paged?: boolean;
  /** PUT changes only the fields that are sent. */
  partial?: boolean;
  /** Records have PATCH. */
  takesPatch?: boolean;
  /** DELETE marks the record as deleted. */
  softDelete?: boolean;
  /** Every field of a request, in the order of a response. */
  fields: Record<string, Field>;
  /** Fields of a response that are not columns of the record, by the field that they follow. */
  computed?: Record<string, string>;
  /** The values of optional fields that are not sent. */
  defaults: Body;
  /** A valid body with every field. */
  first: (refs: References) => Body;
  /**
   * Another valid body, which differs in every field but those of the key and required
   * references.
   */
  second: (refs: References) => Body;
  /** Values of the `orderBy` fields that make a record the n-th of several. */
  nth: (n: number) => Body;
}

const settings = { read: 'user', write: 'settings.write' } as const;
const unknownRecord: [number, string] = [400, 'unknown_record'];
const notFound: [number, string] = [404, 'not_found'];
const name = text({ max: 255, required: true });
const code = text({ max: 50, required: true, unique: true });

/** The examples, by the name of the resource in the catalogue. */
export const examples: Record<string, Example> = {
  EntityStatus: {
    path: '/api/v1/EntityStatus',
    key: 'Id',
    read: 'full.read',
    write: 'full.manage',
    missingProblem: notFound,
    takesPatch: true,
    orderBy: ['Weighting', 'Id'],
    partial: true,
    fields: { Title: name, Weighting: int() },
    defaults: { Weighting: 0 },
    first: () => ({ Title: 'Lead', Weighting: 7 }),
    second: () => ({ Title: 'Former', Weighting: -7 }),
    nth: n => ({ Weighting: n }),
  },
  Country: {
    path: '/api/v1/Countries',
    key: 'CountryCode',
    unique: 'CountryCode',
    lookup: true,
    ...settings,
    missingProblem: unknownRecord,
    orderBy: ['CountryName'],
    softDelete: true,
    fields: { CountryCode: code, CountryName: name },
    defaults: {},
    first: () => ({ CountryCode: uniqueCode(), CountryName: 'Norway' }),
    second: () => ({ CountryCode: uniqueCode(), CountryName: 'Sweden' }),
    nth: n => ({ CountryName: `Land ${n}` }),
  },
  OrderStatus: {
    path: '/api/v1/OrderStatuses',
    key: 'Id',
    ...settings,
    missingProblem: unknownRecord,
    orderBy: ['Weighting', 'Id'],
    fields: { Name: name, Weighting: int() },
    defaults: { Weighting: 0 },
    first: () => ({ Name: 'Open', Weighting: 3 }),
    second: () => ({ Name: 'Shipped', Weighting: -3 }),
    nth: n => ({ Weighting: n }),
  },
  UnitOfMeasure: {
    path: '/api/v1/UnitsOfMeasure',
    key: 'Id',
    unique: 'Code',
    lookup: true,
    ...settings,
    missingProblem: unknownRecord,
    orderBy: ['Code'],
    fields: { Code: code, Name: name },
    defaults: {},
    first: () => ({ Code: uniqueCode(), Name: 'Kilogram' }),
    second: () => ({ Code: uniqueCode(), Name: 'Box' }),
    nth: n => ({ Code: `nth-${n}` }),
  },
  SystemOption: {
    path: '/api/v1/SystemOptions',
    key: 'Id',
    ...settings,
    missingProblem: unknownRecord,
    orderBy: ['SystemOptionTypeId', 'Id'],
    fields: {
      SystemOptionTypeId: int({ min: 1, required: true }),
      Value: text({ max: 4_000, required: true, multiline: true }),
      IsActive: bool(),
      CreatedAt: moment([
        '0001-01-01T00:00:00.000Z',
        '0099-12-31T23:59:59.999Z',
        '9999-12-31T23:59:59.999Z',
      ]),
    },
    defaults: { IsActive: true },
    first: () => ({
      SystemOptionTypeId: 4,
      Value: 'on',
      IsActive: false,
      CreatedAt: '2020-05-17T10:11:12.345Z',
    }),
    second: () => ({
      SystemOptionTypeId: 5,
      Value: 'off',
      IsActive: true,
      CreatedAt: '2021-05-17T10:11:12.345Z',
    }),
    nth: n => ({ SystemOptionTypeId: n }),
  },
  Promotion: {
    path: '/api/v1/Promotions',
    key: 'Id',
    unique: 'PromoCode',
    lookup: true,
    read: 'user',
    write: 'pricing.write',
    missingProblem: notFound,
    takesPatch: true,
    orderBy: ['PromoCode'],
    fields: {
      PromoCode: code,
      Name: name,
      Description: text({ max: 4_000, multiline: true, mayBeEmpty: true, nullable: true }),
      DiscountType: oneOf(['Percentage', 'Amount'], { required: true }),
      DiscountValue: decimal({ min: 0.0001, required: true }),
      CurrencyId: idOf('currencyId', { nullable: true }),
      StartsAt: moment(['0001-01-01T00:00:00.000Z'], { nullable: true }),
      EndsAt: moment(['9999-12-31T23:59:59.999Z'], { nullable: true }),
      EntityIds: entityIds(),
      IsActive: bool(),
    },
    defaults: {
      Description: null,
      CurrencyId: null,
      StartsAt: null,
      EndsAt: null,
      EntityIds: [],
      IsActive: true,
    },
    first: ({ currencyId, entityId }) => ({
      PromoCode: uniqueCode(),
      Name: 'Spring',
      Description: 'Everything\nmust go',
      DiscountType: 'Percentage',
      DiscountValue: 12.5,
      CurrencyId: currencyId,
      StartsAt: '2020-01-01T00:00:00.000Z',
      EndsAt: '2090-01-01T00:00:00.000Z',
      EntityIds: [entityId],
      IsActive: false,
    }),
    second: ({ currencyId }) => ({
      PromoCode: uniqueCode(),
      Name: 'Autumn',
      Description: null,
      DiscountType: 'Amount',
      DiscountValue: 99.9999,
      CurrencyId: currencyId,
      StartsAt: '2021-01-01T00:00:00.000Z',
      EndsAt: '2091-01-01T00:00:00.000Z',
      EntityIds: [],
      IsActive: true,
    }),
    nth: n => ({ PromoCode: `nth-${n}` }),
  },
  Currency: {
    path: '/api/v1/Currency',
    key: 'Id',
    unique: 'Code',
    ...settings,
    missingProblem: notFound,
    takesPatch: true,
    orderBy: ['Code'],
    softDelete: true,
    fields: {
      Code: currencyCode(),
      Name: name,
      Symbol: text({ max: 50, mayBeEmpty: true, nullable: true }),
      DecimalPlaces: int({ min: 0, max: 6 }),
    },
    defaults: { Symbol: null, DecimalPlaces: 2 },
    first: () => ({ Code: uniqueCurrencyCode(), Name: 'Krone', Symbol: 'kr', DecimalPlaces: 0 }),
    second: () => ({ Code: uniqueCurrencyCode(), Name: 'Dinar', Symbol: null, DecimalPlaces: 3 }),
    nth: n => ({ Code: `ZZ${String.fromCharCode(64 + n)}` }),
  },
  TaxCode: {
    path: '/api/v1/TaxCodes',
    key: 'Id',
    unique: 'Code',
    lookup: true,
    ...settings,
    missingProblem: notFound,
    takesPatch: true,
    orderBy: ['Code'],
    fields: { Code: code, Name: name, Rate: decimal({ required: true }), IsActive: bool() },
    defaults: { IsActive: true },
    first: () => ({ Code: uniqueCode(), Name: 'Standard', Rate: 25, IsActive: false }),
    second: () => ({ Code: uniqueCode(), Name: 'Reduced', Rate: 7.125, IsActive: true }),
    nth: n => ({ Code: `nth-${n}` }),
  },
  Entity: {
    path: '/api/v1/Entities',
    key: 'Id',
    read: 'user',
    write: 'full.manage',
    missingProblem: notFound,
    takesPatch: true,
    orderBy: ['Id'],
    paged: true,
    fields: {
      Name: name,
      EntityType: oneOf(['supplier', 'customer'], { required: true }),
      StatusId: idOf('statusId'),
      CurrencyId: idOf('currencyId', { nullable: true }),
      CountryCode: countryCode({ nullable: true }),
    },
    computed: { StatusId: 'StatusTitle' },
    defaults: { StatusId: 1, CurrencyId: null, CountryCode: null },
    first: refs => ({
      Name: 'Nordic Timber',
      EntityType: 'supplier',
      StatusId: refs.statusId,
      CurrencyId: refs.currencyId,
      CountryCode: refs.countryCode,
    }),
    second: () => ({
      Name: 'Corner Shop',
      EntityType: 'customer',
      StatusId: 1,
      CurrencyId: null,
      CountryCode: null,
    }),
    nth: () => ({}),
  },
};

/** Returns every field of a response, in order. */
export function responseFields({ key, fields, computed, softDelete }: Example): string[] {
  const sent = Object.keys(fields).filter(field => field !== 'CreatedAt');
  return [
    ...(key === 'Id' ? ['Id'] : []),
    ...sent.flatMap(field => [field, computed?.[field] ?? []].flat()),
    ...(softDelete ? ['IsDeleted', 'DeletedAt'] : []),
    'CreatedAt',
  ];
}

/** Returns the required fields of a body. */
export function requiredOnly({ fields }: Example, body: Body): Body {
  return Object.fromEntries(Object.entries(body).filter(([field]) => fields[field]?.required));
}

/** Creates the records that those of the examples refer to. */
export async function createReferences(client: Client): Promise<References> {
  const create = async (path: string, body: Body): Promise<Body> =>
    (await client.post(`/api/v1/${path}`, body)).body;
  const { Id: statusId } = await create('EntityStatus', { Title: 'Referred to', Weighting: 9 });
  const { Id: currencyId } = await create('Currency', {
    Code: uniqueCurrencyCode(),
    Name: 'Referred to',
  });
  const country = { CountryCode: `Land-${uniqueCode()}`, CountryName: 'Referred to' };
  const { CountryCode: countryCode } = await create('Countries', country);
  const { Id: entityId } = await create('Entities', {
    Name: 'Referred to',
    EntityType: 'customer',
  });
  return { statusId, currencyId, countryCode, entityId } as References;
}
