import type { Operation } from '../command/operation.ts';
import { optionFlag } from '../command/operation-fields.ts';

/** What somebody has filled in: the texts of each field. A flag that is set has the text `on`. */
export interface FilledForm {
  readonly operation: Operation;
  readonly texts: Readonly<Record<string, readonly string[]>>;
  /** For the log of operators. */
  readonly reason: string;
}

/**
 * Returns the arguments of the command line that a form stands for. Secrets are not among them: see `secretOf`.
 * @param isPlan true to show what would happen, and to change nothing
 */
export function argumentsOf({ operation: { name, fields }, texts, reason }: FilledForm, isPlan = false): string[] {
  const given = Object.entries(fields).map(([field, definition]) => ({
    definition,
    flag: optionFlag(field, definition),
    values: (texts[field] ?? []).filter(text => text !== String(definition.default ?? '')),
  }));
  const positions = given.filter(({ definition }) => definition.isArgument).flatMap(({ values }) => values);
  const options = given
    .filter(({ definition }) => !definition.isArgument)
    .flatMap(({ definition: { kind }, flag, values }) =>
      values.map(value => (kind === 'flag' || kind === 'secret' ? flag : `${flag}=${value}`)),
    )
    .filter(text => text !== undefined);
  const isOdd = positions.some(text => text.startsWith('-'));
  return [
    ...name.split(' '),
    ...(isOdd ? [] : positions),
    ...options,
    ...(reason ? [`--reason=${reason}`] : []),
    ...(isPlan ? ['--dry-run'] : []),
    ...(isOdd ? ['--', ...positions] : []),
  ];
}

/** Returns the secret of a form, which its command reads from stdin; undefined: it reads none. */
export function secretOf({ operation: { fields }, texts }: FilledForm): string | undefined {
  const [name] = Object.entries(fields).find(([, { kind }]) => kind === 'secret') ?? [];
  return name === undefined ? undefined : texts[name]?.[0];
}

/** Returns a form without its secret, which nothing shows again. */
export function withoutSecret(form: FilledForm): FilledForm {
  const { fields } = form.operation;
  const texts = Object.entries(form.texts).map(([name, values]) => [
    name,
    fields[name]?.kind === 'secret' ? values.map(() => 'given') : values,
  ]);
  return { ...form, texts: Object.fromEntries(texts) };
}

/** Returns the command that does the same on a command line. */
export function commandText(form: FilledForm): string {
  const words = argumentsOf(form).map(quote);
  return `npx backoffice ${words.join(' ')}${secretOf(form) === undefined ? '' : ' < secret-file'}`;
}

/** Quotes a word for a POSIX shell. The name of an option stays outside of the quotes. */
function quote(word: string): string {
  const [, flag = '', value = ''] = /^(--[\w-]+=)?(.*)$/s.exec(word) ?? [];
  if (/^[\w@%+:,./-]+$/.test(value) || (value === '' && flag === '')) return `${flag}${value || "''"}`;
  return `${flag}'${value.replaceAll("'", `'\\''`)}'`;
}
