import { OperatorError } from '../../lib/log/operator-error.ts';
import { readId } from '../../lib/runtime/id-text.ts';
import { readTime } from '../../lib/runtime/time-text.ts';
import type { StoredValue } from './stored-values.ts';

/**
 * The kinds of values that name something outside of the installation: a file or a folder of
 * this host, or the address of a server or a page. A plan that uses one reads it, resolves it or
 * connects to it, with the rights of the process.
 */
type OutsideKind = 'file' | 'url';

/**
 * The kind of the value of a field. The control database has all values of a stored kind; the
 * target has the archives of a tenant. A `text` names nothing outside of the installation: what
 * an operation does with it is to compare or to store it.
 */
export type FieldKind = StoredValue | OutsideKind | 'text' | 'flag' | 'secret' | 'time' | 'archive';

/**
 * A value that an operation takes: an argument or option of the command line, an input of a
 * form.
 */
export interface Field<Value = unknown> {
  readonly kind: FieldKind;
  readonly isArgument: boolean;
  readonly isRequired: boolean;
  /**
   * True for several values. An argument takes all words that are left; an option may be
   * repeated.
   */
  readonly isList: boolean;
  /** The word for the value in the help: `server` in `--to <server>`. */
  readonly placeholder: string;
  readonly description: string;
  /** The name for people. Without one, the name of the field in words: `First name`. */
  readonly label?: string | undefined;
  /** The unit of a number, in the plural: `hours`. */
  readonly unit?: string | undefined;
  /**
   * True for a field that most people leave as it is: a form folds it away until it has a
   * value.
   */
  readonly isAdvanced?: boolean | undefined;
  /**
   * The fields that can replace this one: a form folds it away while one of them has a value.
   */
  readonly unless?: readonly string[] | undefined;
  /** The default, in words: `this month`. */
  readonly otherwise?: string | undefined;
  /** True for several names in one text, with commas between them. */
  readonly isNames?: boolean | undefined;
  /** True if its value makes a change of an operation that reads: `doctor --fix`. */
  readonly isChange?: boolean | undefined;
  readonly choices?: readonly string[] | undefined;
  readonly default?: unknown;
  /** Checks the text of a value and converts it. Throws an error for people. */
  readonly parse?: ((text: string) => unknown) | undefined;
  /** The field that can replace this one. Without a value of either, the operation refuses. */
  readonly neededUnless?: string | undefined;
  /** The name of a secret, in a question for it. */
  readonly prompt?: string | undefined;
  /** The flag of an option that has another name than its field, as beside an argument. */
  readonly flag?: string | undefined;
  /** The kind of a secret. */
  readonly secretKind?: SecretKind | undefined;
  /** The option with which the command line reads an optional secret from stdin. */
  readonly secretFlag?: string | undefined;
  /** Carries the type of the value; has no value itself. */
  readonly type?: () => Value;
}

/** The kind of a secret: a text, or one that names something outside of the installation. */
type SecretKind = 'text' | OutsideKind;

export type Fields = Readonly<Record<string, Field>>;

/** The values of fields, by name: checked, converted, and with defaults. */
export type Values<F extends Fields> = {
  readonly [Name in keyof F]: F[Name] extends Field<infer Value> ? Value : never;
};

/** The appearance of a field, beside its description. */
type Appearance = Pick<
  Field,
  'label' | 'unit' | 'isAdvanced' | 'unless' | 'otherwise' | 'isChange'
>;

interface More<Value> extends Appearance {
  readonly kind?: FieldKind;
  readonly description?: string;
  readonly choices?: readonly Value[];
  readonly parse?: (text: string) => Value;
  readonly neededUnless?: string;
  readonly flag?: string;
}

/**
 * The kind of the value of an option, which each definition says: nobody can see from a text
 * whether a plan reads a file by it.
 */
type Kind<Value> = { readonly kind: FieldKind } | { readonly choices: readonly Value[] };

const text = {
  kind: 'text',
  isArgument: false,
  isRequired: false,
  isList: false,
  placeholder: '',
  description: '',
};
const field = <Value>(
  more: Omit<Partial<Field<Value>>, 'choices'> & { choices?: readonly unknown[] },
): Field<Value> => ({ ...text, ...more }) as Field<Value>;

/** A value that stands after the name of the command. */
export function argument<Value = string>(
  kind: FieldKind,
  more: More<Value> = {},
): Field<NoInfer<Value>> {
  return field({ kind, ...more, isArgument: true, isRequired: true });
}

export function optionalArgument<Value = string>(
  kind: FieldKind,
  more: More<Value> = {},
): Field<NoInfer<Value> | undefined> {
  return field<Value | undefined>({ kind, ...more, isArgument: true });
}

/** All values that stand after those of the other arguments. */
export function argumentList(
  kind: FieldKind,
  more: More<string> & { isRequired?: boolean } = {},
): Field<string[]> {
  return field<string[]>({ kind, ...more, isArgument: true, isList: true });
}

export function option<Value = string>(
  placeholder: string,
  description: string,
  more: More<Value> & Kind<Value> & { default: NoInfer<Value> },
): Field<NoInfer<Value>>;
export function option<Value = string>(
  placeholder: string,
  description: string,
  more: More<Value> & Kind<Value>,
): Field<NoInfer<Value> | undefined>;
export function option(placeholder: string, description: string, more: More<unknown>): Field {
  return field({ ...more, placeholder, description });
}

export function requiredOption<Value = string>(
  placeholder: string,
  description: string,
  more: More<Value> & Kind<Value>,
): Field<NoInfer<Value>> {
  return field({ ...more, placeholder, description, isRequired: true });
}

/** A number of `unit`s above 0, such as `--keep <hours>`. */
export function amount<Value = number>(
  unit: string,
  description: string,
  more: More<Value> & { default: NoInfer<Value> },
): Field<NoInfer<Value>>;
export function amount<Value = number>(
  unit: string,
  description: string,
  more?: More<Value>,
): Field<NoInfer<Value> | undefined>;
export function amount(unit: string, description: string, more: More<unknown> = {}): Field {
  return field({ parse: parsePositive, ...more, unit, placeholder: `<${unit}>`, description });
}

/** An option that may be repeated. */
export function optionList(
  placeholder: string,
  description: string,
  more: Appearance & { choices?: readonly string[] } & Kind<string>,
): Field<string[]> {
  return field({ ...more, placeholder, description, isList: true });
}

/**
 * An option that takes names with commas between them.
 * @param choices all that there are
 */
export function optionNames(
  description: string,
  choices: readonly string[],
  more: Appearance = {},
): Field<string[] | undefined> {
  return field<string[] | undefined>({
    ...more,
    placeholder: '<names>',
    description,
    choices,
    isNames: true,
    parse: parseNames,
  });
}

export function flag(description: string, more: Appearance = {}): Field<boolean> {
  return field({ ...more, kind: 'flag', description });
}

/**
 * A secret, which never stands on a command line and is never recorded.
 * @param prompt the name of the secret, in a question for it
 */
export function secret(secretKind: SecretKind, prompt: string): Field<string> {
  return field({ kind: 'secret', secretKind, prompt, isRequired: true });
}

/** @param secretFlag the option of the command line with which it is read from stdin */
export function optionalSecret(
  secretKind: SecretKind,
  prompt: string,
  secretFlag: string,
  description: string,
  more: Appearance = {},
): Field<string | undefined> {
  return field<string | undefined>({
    ...more,
    kind: 'secret',
    secretKind,
    prompt,
    secretFlag,
    description,
  });
}

const outsideKinds: readonly unknown[] = ['file', 'url'] satisfies OutsideKind[];

/** True for a field that names something outside of the installation. */
export function isOutside({ kind, secretKind }: Field): boolean {
  return outsideKinds.includes(kind) || outsideKinds.includes(secretKind);
}

/** Adds the values of fields that were not given. */
export function withDefaults(
  fields: Fields,
  given: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const values = Object.entries(fields).map(([name, { kind, isList, default: value }]) => {
    const none = kind === 'flag' ? false : isList ? [] : value;
    return [name, given[name] ?? none];
  });
  return Object.fromEntries(values);
}

const otherKinds: readonly FieldKind[] = [
  'text',
  'file',
  'url',
  'flag',
  'secret',
  'time',
  'archive',
];

function isStored(kind: FieldKind): kind is StoredValue {
  return !otherKinds.includes(kind);
}

/**
 * Returns the kind of stored values that a field can have; undefined when its values are not in
 * the control database.
 */
export function storedKindOf({ kind }: Field): StoredValue | undefined {
  return isStored(kind) ? kind : undefined;
}

/**
 * Returns the flag of an option; undefined for a secret that is always needed, which is read
 * from stdin.
 */
export function optionFlag(name: string, { kind, flag, secretFlag }: Field): string | undefined {
  return flag ?? secretFlag ?? (kind === 'secret' ? undefined : `--${kebabCase(name)}`);
}

/** `newSlug` → `new-slug` */
export function kebabCase(name: string): string {
  return name.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`);
}

/** Parses the value of a field that must be a whole number above 0. */
export function parsePositive(value: string): number {
  if (!/^[1-9]\d{0,8}$/.test(value)) throw new OperatorError('Give a whole number above 0.');
  return Number(value);
}

/** Parses the value of a field that must be a whole number, or 0. */
export function parseCount(value: string): number {
  return value === '0' ? 0 : parsePositive(value);
}

/** Parses the value of a field that is the number of a record. */
export function parseId(value: string): number {
  const id = readId(value);
  if (id === undefined) throw new OperatorError('Give an id: a whole number above 0.');
  return id;
}

const units: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * Parses the value of an option that is a time, or how long ago it was.
 * @returns the time in ISO 8601
 */
export function parseTime(value: string): string {
  const [, number, unit = ''] = /^(\d{1,5})([mhd])$/.exec(value) ?? [];
  if (number !== undefined) {
    return new Date(Date.now() - Number(number) * (units[unit] ?? 0)).toISOString();
  }

  // A day begins at midnight UTC.
  const time = readTime(/^\d{4}-\d\d-\d\d$/.test(value) ? `${value}T00:00Z` : value);
  if (!time) {
    throw new OperatorError(
      'Give a time such as 2026-11-22T14:00Z, with its zone, or 90m, 12h, 7d.',
    );
  }
  return time.toISOString();
}

/** Parses names that are separated by commas. */
export function parseNames(value: string): string[] {
  return value.split(',').map(name => name.trim());
}
