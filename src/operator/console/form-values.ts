import { type Field, type Fields, isOutside, withDefaults } from '../command/operation-fields.ts';
import { fieldLabel } from '../command/texts.ts';
import type { FilledForm } from './command-line.ts';
import type { Offered } from './offered.ts';

/** A fault of a form: the id of the input, or `formId`, and a sentence. */
export interface FormError {
  readonly id: string;
  readonly text: string;
  /** The name of the input, for places where the sentence is not beside the input. */
  readonly label?: string;
}

/** The id of the form itself, for errors of no single input. */
export const formId = 'form';
export const inputId = (name: string): string => `f-${name}`;

/**
 * Reads the values that a visitor or a link has filled in. The parameters have the names of the
 * fields.
 */
export function readFilledForm({ operation }: Offered, given: URLSearchParams): FilledForm {
  const texts = Object.entries(operation.fields).map(([name, field]) => {
    const values = given
      .getAll(name)
      .flatMap(text => (isSeveral(field) ? text.split(/[\s,]+/) : [text]));
    const trimmed = field.kind === 'secret' ? values : values.map(text => text.trim());
    const read =
      field.kind === 'time'
        ? trimmed.map(text => (localTime.test(text) ? `${text}Z` : text))
        : trimmed;
    return [name, read.filter(text => text !== '')];
  });
  return { operation, texts: Object.fromEntries(texts) };
}

/** A time as an input of a browser has it, without a zone: it is in UTC. */
export const localTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?$/;

/** True for a field that can have several values, each of which is picked. */
export function isSeveral({ isList, isNames }: Partial<Field>): boolean {
  return isList === true || isNames === true;
}

export function checkForm({ operation: { fields }, texts }: FilledForm): FormError[] {
  return Object.entries(fields).flatMap(([name, field]) => {
    const values = texts[name] ?? [];
    const text =
      values.length === 0
        ? missing(field, fields, texts)
        : values.map(value => fault(field, value)).find(Boolean);
    return text === undefined ? [] : [{ id: inputId(name), text, label: fieldLabel(name, field) }];
  });
}

/** Returns the values of a form that `checkForm` found right, by the names of their fields. */
export function formValues({ operation: { fields }, texts }: FilledForm): Record<string, unknown> {
  const given = Object.entries(fields).flatMap(([name, { kind, isList, isNames, parse }]) => {
    const given = texts[name] ?? [];
    const values = (isNames ? [given.join(',')] : given).map(text =>
      kind === 'flag' ? true : parse ? parse(text) : text,
    );
    return given.length === 0 ? [] : [[name, isList ? values : values[0]]];
  });

  return withDefaults(fields, Object.fromEntries(given));
}

/**
 * Returns the labels of the filled-in fields, and of those with a default, that name something
 * outside of the installation. A plan would look at it with the rights of this process.
 */
export function outsideLabels({ operation: { fields }, texts }: FilledForm): string[] {
  return Object.entries(fields).flatMap(([name, field]) => {
    const isUsed = (texts[name] ?? []).length > 0 || field.default !== undefined;
    return isUsed && isOutside(field) ? [fieldLabel(name, field)] : [];
  });
}

function missing(
  { isRequired, neededUnless }: Field,
  fields: Fields,
  texts: FilledForm['texts'],
): string | undefined {
  if (isRequired) return 'Fill this in';
  const hasOther = neededUnless === undefined || (texts[neededUnless] ?? []).length > 0;
  return hasOther
    ? undefined
    : `Fill this in, or “${fieldLabel(neededUnless, fields[neededUnless])}”`;
}

function fault({ choices, parse }: Field, text: string): string | undefined {
  if (choices && !choices.includes(text)) return `Choose one of ${choices.join(', ')}`;
  if (/[\p{Cc}]/u.test(text)) return 'must not contain control characters';
  try {
    parse?.(text);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
