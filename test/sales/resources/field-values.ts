/** Keys of records that other records refer to. */
export interface References {
  statusId: number;
  currencyId: number;
  countryCode: string;
  entityId: number;
}

/**
 * The values that a field of a request accepts and refuses, written independently of the
 * contracts of the service.
 */
export interface Field {
  required: boolean;
  /** Accepted JSON texts, each with the stored value. */
  good: (refs: References) => [json: string, stored: unknown][];
  /** JSON texts that are refused with an error for the field. */
  bad: string[];
  /** True if the field accepts a JSON value. */
  accepts: (value: unknown, refs: References) => boolean;
  /** Returns the stored form of an accepted value. */
  stored: (value: unknown, refs: References) => unknown;
}

interface Options {
  required?: boolean;
  /** The field accepts null. */
  nullable?: boolean;
}

let count = 0;
/** Returns a code that no other call returns. */
export const uniqueCode = (): string => `u${++count}`;

/** Returns three capital letters that no other call returns. */
export const uniqueCurrencyCode = (): string => {
  const n = count++;
  return [n / 676, n / 26, n]
    .map(part => String.fromCharCode(65 + (Math.floor(part) % 26)))
    .join('');
};

const json = (...values: unknown[]): string[] => values.map(value => JSON.stringify(value));
const same = (value: unknown): unknown => value;

/**
 * Adds null to the accepted or to the refused values of a field. An optional field takes null as
 * no value.
 */
function orNull(
  { required = false, nullable = false }: Options,
  field: Omit<Field, 'required'>,
): Field {
  return {
    required,
    good: refs => [...field.good(refs), ...(nullable ? [['null', null] as [string, unknown]] : [])],
    bad: nullable || !required ? field.bad : [...field.bad, 'null'],
    accepts: (value, refs) => (value === null ? nullable || !required : field.accepts(value, refs)),
    stored: (value, refs) => (value === null ? null : field.stored(value, refs)),
  };
}

const clean = (value: unknown): string => String(value).trim().normalize('NFC');
const emoji = '\u{1f984}';

interface TextOptions extends Options {
  /** In code points. */
  max: number;
  multiline?: boolean;
  mayBeEmpty?: boolean;
  /** No two records may have the same value. */
  unique?: boolean;
}

export function text({
  max,
  multiline = false,
  mayBeEmpty = false,
  unique = false,
  ...options
}: TextOptions): Field {
  const allowed = multiline ? '\t\n' : '';
  const isControl = (character: string) =>
    /\p{Cc}/u.test(character) && !allowed.includes(character);
  const prefix = () => (unique ? uniqueCode() : '');
  const isHidden = (character: string) =>
    unique && /\p{Default_Ignorable_Code_Point}/u.test(character);

  const filled = (character: string): string => {
    const start = prefix();
    return start + character.repeat(max - start.length);
  };

  const unchanged = (...values: string[]): [string, unknown][] =>
    values.map(value => [JSON.stringify(value), value]);

  return orNull(options, {
    good: () => {
      const [padded, accented] = [prefix(), prefix()];
      const values: [json: string, stored: unknown][] = [
        [JSON.stringify(` \u3000${padded}two words\u2003 `), `${padded}two words`],
        [JSON.stringify(`${accented}e\u0301`), `${accented}\u00e9`],
        ...unchanged(filled('x'), filled(emoji), `${prefix()}'";--\\%_\${7*7}<b>x`),
        ...(unique ? [] : unchanged('a\u202e\u200bx')),
        ...(multiline ? unchanged('one\ttab\nand two lines') : []),
        ...(mayBeEmpty ? ([['"  "', '']] as [string, unknown][]) : []),
      ];

      return values.filter(([, stored]) => [...String(stored)].length <= max);
    },
    bad: [
      ...json(5, true, [], {}, ['text']),
      ...(mayBeEmpty ? [] : json('', '   ', '\u3000\t\n')),
      ...json(
        'nul\0',
        '\0',
        'uni\u001ft',
        'del\u007f',
        'next\u0085line',
        '\ud800',
        'a\udc00b',
        '\udc00\ud800',
      ),
      ...(unique ? json('a\u200bb', 'ab\u202e', 'a\u00adb') : []),
      ...json(...(multiline ? ['a\rb', 'a\vb'] : ['a\tb', 'a\nb', 'a\rb'])),
      ...json('x'.repeat(max + 1), emoji.repeat(max + 1), 'e\u0301'.repeat(max + 1)),
    ],
    accepts: value =>
      typeof value === 'string' &&
      value.isWellFormed() &&
      ![...value.trim()].some(isControl) &&
      ![...value].some(isHidden) &&
      (mayBeEmpty || clean(value) !== '') &&
      [...clean(value)].length <= max,
    stored: clean,
  });
}

/** A field of three capital letters. */
export function currencyCode(): Field {
  return orNull(
    { required: true },
    {
      good: () => {
        const [plain, padded] = [uniqueCurrencyCode(), uniqueCurrencyCode()];

        return [
          [JSON.stringify(plain), plain],
          [JSON.stringify(` ${padded} `), padded],
        ];
      },
      bad: json(
        '',
        'EU',
        'EURO',
        'eur',
        'EU1',
        'ÄÖÜ',
        'E R',
        'EUR\0',
        'E\nR',
        978,
        true,
        [],
        ['EUR'],
        {},
      ),
      accepts: value => typeof value === 'string' && /^[A-Z]{3}$/.test(value.trim()),
      stored: clean,
    },
  );
}

interface NumberOptions extends Options {
  min?: number;
  max?: number;
}

const notNumbers = [...json('5', '', true, false, [], [1], {}), '1e400', '-1e400'];

export function int({
  min = -(2 ** 31),
  max = 2 ** 31 - 1,
  ...options
}: NumberOptions = {}): Field {
  const accepts = (value: unknown) =>
    Number.isInteger(value) && Number(value) >= min && Number(value) <= max;

  const spellings: [string, number][] = [
    [String(min), min],
    [String(max), max],
    ['0', 0],
    ['5.0', 5],
    ['1e3', 1_000],
  ];

  return orNull(options, {
    good: () => spellings.filter(([, value]) => accepts(value)),
    bad: [
      ...notNumbers,
      '1.5',
      '1e-1',
      String(min - 1),
      String(max + 1),
      '9007199254740993',
      '1e30',
    ],
    accepts,
    stored: same,
  });
}

interface DecimalOptions extends NumberOptions {
  decimals?: number;
}

/** A number with at most so many decimals, by default four. */
export function decimal({
  min = 0,
  max = 100,
  decimals = 4,
  ...options
}: DecimalOptions = {}): Field {
  const tooMany = new RegExp(`\\.\\d{${decimals + 1}}|e-`);
  const accepts = (value: unknown) =>
    typeof value === 'number' && value >= min && value <= max && !tooMany.test(String(value));

  const spellings: [string, number][] = [
    ['0', 0],
    ['0.0001', 0.0001],
    ['33.3333', 33.3333],
    ['0.3', 0.3],
    ['19.25', 19.25],
    ['99.9999', 99.9999],
    ['1e2', 100],
  ];

  return orNull(options, {
    good: () => spellings.filter(([, value]) => accepts(value)),
    bad: [
      ...notNumbers,
      '-0.0001',
      '-1',
      `0.${'0'.repeat(decimals)}1`,
      `33.${'3'.repeat(decimals + 1)}`,
      '100.0001',
      '100.00000001',
      '1e30',
      '5e-324',
    ],
    accepts,
    stored: same,
  });
}

export function bool(options: Options = {}): Field {
  return orNull(options, {
    good: () => [
      ['true', true],
      ['false', false],
    ],
    bad: json('true', '', 0, 1, [], [true], {}),
    accepts: value => typeof value === 'boolean',
    stored: same,
  });
}

export function oneOf(values: string[], options: Options = {}): Field {
  const [first = ''] = values;
  return orNull(options, {
    good: () => values.map(value => [JSON.stringify(value), value]),
    bad: json('', 'other', first.toUpperCase(), ` ${first}`, 0, true, [], [first], {}),
    accepts: value => values.includes(value as string),
    stored: same,
  });
}

/** An ISO 8601 date-time. `good` are further accepted values, in their stored form. */
export function moment(good: string[], options: Options = {}): Field {
  const accepts = (value: unknown) => {
    if (
      typeof value !== 'string' ||
      !/^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(value)
    ) {
      return false;
    }

    const year = new Date(value).getUTCFullYear();
    return year >= 1 && year <= 9_999;
  };

  return orNull(options, {
    good: () => [
      ['"2026-01-01T12:00:00+02:00"', '2026-01-01T10:00:00.000Z'],
      ['"2026-02-28T23:59:59.9876543Z"', '2026-02-28T23:59:59.987Z'],
      ...good.map(value => [JSON.stringify(value), value] as [string, string]),
    ],
    bad: json(
      1_700_000_000_000,
      0,
      true,
      [],
      {},
      '',
      'now',
      'infinity',
      '1700000000',
      '0000-00-00',
      '0000-00-00T00:00:00Z',
      '0000-12-31T23:59:59Z',
      '0001-01-01T00:00:00+14:00',
      '99999-01-01T00:00:00Z',
      '+099999-01-01T00:00:00Z',
      '9999-12-31T23:59:59-14:00',
      '-000001-01-01T00:00:00Z',
      '2026-02-30T00:00:00Z',
      '2026-13-01T00:00:00Z',
      '2026-01-01T25:00:00Z',
      '2025-02-29T00:00:00Z',
      '2026-01-01',
      '2026-01-01T00:00:00',
      '2026-01-01 00:00:00Z',
      '01/02/2026',
      '2026-W01-1T00:00:00Z',
    ),
    accepts,
    stored: value => new Date(String(value)).toISOString(),
  });
}

/** The id of an existing record. */
export function idOf(name: 'statusId' | 'currencyId', options: Options = {}): Field {
  return orNull(options, {
    good: refs => [[String(refs[name]), refs[name]]],
    bad: [...notNumbers, '0', '-1', '1.5', '2147483647', '2147483648', '9007199254740993'],
    // A new tenant has three statuses.
    accepts: (value, refs) =>
      value === refs[name] || (name === 'statusId' && [1, 2, 3].includes(value as number)),
    stored: same,
  });
}

export function countryCode(options: Options = {}): Field {
  const lower = (value: unknown) => clean(value).toLowerCase();
  return orNull(options, {
    good: refs => [
      [JSON.stringify(refs.countryCode), refs.countryCode],
      [JSON.stringify(` ${refs.countryCode.toLowerCase()} `), refs.countryCode],
    ],
    bad: json('', 'nowhere', 'x'.repeat(51), '\0', '\ud800', 5, true, [], {}),
    accepts: (value, refs) => typeof value === 'string' && lower(value) === lower(refs.countryCode),
    stored: (_, refs) => refs.countryCode,
  });
}

/** Ids of existing entities, each stored once. */
export function entityIds(options: Options = {}): Field {
  return orNull(options, {
    good: ({ entityId }) => [
      ['[]', []],
      [`[${entityId}]`, [entityId]],
      [`[${entityId},${entityId}.0]`, [entityId]],
    ],
    bad: [
      ...json(
        5,
        '5',
        true,
        {},
        [0],
        [-1],
        [1.5],
        ['1'],
        [null],
        [[1]],
        [{}],
        [2 ** 53],
        [Number.MAX_SAFE_INTEGER],
      ),
      '[1e400]',
      JSON.stringify(Array.from({ length: 1_001 }, () => 1)),
    ],
    accepts: (value, { entityId }) =>
      Array.isArray(value) && value.length <= 1_000 && value.every(id => id === entityId),
    stored: value => [...new Set(value as number[])],
  });
}
