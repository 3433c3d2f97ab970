import { type Html, html } from '../../docs/html.ts';
import { optionFlag } from '../command/operation-fields.ts';
import { operationPath } from './links.ts';
import type { Offer } from './offered.ts';

/** A command in a text, up to the punctuation, or the placeholder, that follows it. */
const command = /(npx backoffice [a-z][\w-]*(?: [\w@+:.,/=-]*[\w@+/=])*)/;

/** Makes each command in a text a link to its form, filled in: who reads it need not type it. */
export function linkCommands(text: string, offered: Offer): Html {
  return html`${text.split(command).map((part, at) => {
    const path = at % 2 === 1 ? formPath(part.split(' ').slice(2), offered) : undefined;
    return path === undefined ? part : html`<a href="${path}">${part}</a>`;
  })}`;
}

/** Returns the address of the form that a command line fills in; undefined for a command without a form. */
function formPath(words: readonly string[], offered: Offer): string | undefined {
  const name = [words.slice(0, 2).join(' '), words[0] ?? ''].find(each => offered.has(each));
  const fields = name === undefined ? undefined : offered.get(name)?.operation.fields;
  if (name === undefined || !fields) return undefined;
  const query = new URLSearchParams();
  const positions = Object.keys(fields).filter(field => fields[field]?.isArgument);
  const options = new Map(Object.entries(fields).map(([field, definition]) => [optionFlag(field, definition), field]));
  const rest = words.slice(name.split(' ').length);
  while (rest.length > 0) {
    const [word = '', value] = (rest.shift() ?? '').split('=');
    const isOption = word.startsWith('-');
    const field = isOption ? options.get(word) : fields[positions[0] ?? '']?.isList ? positions[0] : positions.shift();
    if (field === undefined) continue;
    const isFlag = fields[field]?.kind === 'flag';
    query.append(field, isFlag ? 'on' : isOption ? (value ?? rest.shift() ?? '') : word);
  }
  return `${operationPath(name)}${query.size > 0 ? `?${query}` : ''}`;
}
