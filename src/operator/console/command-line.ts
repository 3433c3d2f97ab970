import { type Html, html } from '../../lib/html/html.ts';
import type { Operation } from '../command/operation.ts';
import { type Field, optionFlag } from '../command/operation-fields.ts';
import { operationPath, withQuery } from './links.ts';
import type { Offer } from './offered.ts';

/** A form, filled in: the texts of each field. A flag that is set has the text `on`. */
export interface FilledForm {
  readonly operation: Operation;
  readonly texts: Readonly<Record<string, readonly string[]>>;
}

/**
 * Returns the arguments of the command line that a form stands for. Secrets are not among them:
 * see `secretOf`.
 * @param isPlan true to show what would happen, and to change nothing
 */
export function argumentsOf(
  { operation: { name, fields }, texts }: FilledForm,
  isPlan = false,
): string[] {
  const positions: string[] = [];
  const options: string[] = [];
  for (const [field, definition] of Object.entries(fields)) {
    const flag = optionFlag(field, definition);
    const isBare = definition.kind === 'flag' || definition.kind === 'secret';
    for (const text of valuesIn(definition, texts[field])) {
      if (text === String(definition.default ?? '')) continue;
      else if (definition.isArgument) positions.push(text);
      else if (flag !== undefined) options.push(isBare ? flag : `${flag}=${text}`);
    }
  }

  if (isPlan) options.push('--dry-run');
  const isOdd = positions.some(text => text.startsWith('-'));

  return [
    ...name.split(' '),
    ...(isOdd ? [...options, '--', ...positions] : [...positions, ...options]),
  ];
}

/**
 * Returns the texts of a field in the form of a command line: several names are one text, with
 * commas between them.
 */
function valuesIn({ isNames }: Field, texts: readonly string[] = []): readonly string[] {
  return isNames && texts.length > 0 ? [texts.join(',')] : texts;
}

/**
 * Returns the secret of a form, which its command reads from stdin; undefined: it reads none.
 */
export function secretOf({ operation: { fields }, texts }: FilledForm): string | undefined {
  const [name] = Object.entries(fields).find(([, { kind }]) => kind === 'secret') ?? [];
  return name === undefined ? undefined : texts[name]?.[0];
}

/** Returns a form without its secret, which no page shows again. */
export function withoutSecret(form: FilledForm): FilledForm {
  const texts = Object.entries(form.texts).map(([name, values]) => [
    name,
    form.operation.fields[name]?.kind === 'secret' ? values.map(() => 'given') : values,
  ]);
  return { ...form, texts: Object.fromEntries(texts) };
}

/** Returns the command that does the same on a command line. */
export function commandText(form: FilledForm): string {
  const words = argumentsOf(form).map(quote);
  return `bin/backoffice ${words.join(' ')}${secretOf(form) === undefined ? '' : ' < secret-file'}`;
}

/** Quotes a word for a POSIX shell. The name of an option stays outside of the quotes. */
function quote(word: string): string {
  const [, flag = '', value = ''] = /^(--[\w-]+=)?(.*)$/s.exec(word) ?? [];
  if (/^[\w@%+:,./-]+$/.test(value) || (value === '' && flag === '')) {
    return `${flag}${value || "''"}`;
  }
  return `${flag}'${value.replaceAll("'", `'\\''`)}'`;
}

/** A command in a text, up to the punctuation, or the placeholder, that follows it. */
export const command = /(bin\/backoffice [a-z][\w-]*(?: [\w@+:.,/=-]*[\w@+/=])*)/;

/** Turns each command in a text into a link to its form, filled in. */
export function linkCommands(text: string, offered: Offer): Html {
  return html`${text.split(command).map((part, at) => {
    const path = at % 2 === 1 ? formPath(part.split(' ').slice(1), offered) : undefined;
    return path === undefined ? part : html`<a href="${path}">${part}</a>`;
  })}`;
}

/**
 * Returns the address of the form that a command line fills in, or of the page that shows the
 * same; undefined for a command without either.
 */
function formPath(words: readonly string[], offered: Offer): string | undefined {
  const names = [3, 2, 1].map(count => words.slice(0, count).join(' '));
  const { operation } = names.map(name => offered.get(name)).find(Boolean) ?? {};
  if (!operation) return undefined;

  const fields = Object.entries(operation.fields);
  const positions = fields.filter(([, { isArgument }]) => isArgument);

  if (operation.name === 'runs show' && /^\d+$/.test(words[2] ?? '')) {
    return `/migrations/${words[2]}`;
  }

  const texts: Record<string, string[]> = {};
  const rest = words.slice(operation.name.split(' ').length);

  while (rest.length > 0) {
    const [word = '', value] = (rest.shift() ?? '').split('=');
    const isOption = word.startsWith('-');

    const [field, definition] =
      (isOption
        ? fields.find(([name, each]) => optionFlag(name, each) === word)
        : positions[0]?.[1].isList
          ? positions[0]
          : positions.shift()) ?? [];
    if (field === undefined) continue;

    // A word such as EMAIL stands for a value that nobody knows yet.
    if (/^[A-Z]+$/.test(word)) continue;

    const text =
      definition?.kind === 'flag' ? 'on' : isOption ? (value ?? rest.shift() ?? '') : word;
    texts[field] = [...(texts[field] ?? []), text];
  }

  return withQuery(operationPath(operation.name), texts);
}
