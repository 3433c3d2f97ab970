import { withoutUrls } from '../../lib/log/describe-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';

/** Returns a number with its noun: `1 tenant`, `2 tenants`. */
export function countText(number: number, one: string, many = `${one}s`): string {
  return `${number} ${number === 1 ? one : many}`;
}

/** Formats a number of bytes, such as `1.5 MiB`. */
export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(units.length, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${units[power - 1]}`;
}

/**
 * Returns the lines of a paragraph without wrapping. Lines that begin with a space, such as
 * commands, stay lines; successive other lines are joined to one.
 */
export function unwrapped(paragraph: string): string[] {
  const lines: string[] = [];
  let isOpen = false;
  for (const line of paragraph.split('\n')) {
    const isText = !line.startsWith(' ');
    if (isOpen && isText) lines[lines.length - 1] += ` ${line}`;
    else lines.push(line);
    isOpen = isText;
  }
  return lines;
}

const maxLength = 300;

/** Messages of the driver and of Node for a connection that PostgreSQL has ended. */
const endedConnection =
  /^Connection terminated|^Client has encountered a connection error|^(?:read|write) (?:ECONNRESET|EPIPE)$/;

/**
 * Describes an error in one line of at most 300 characters, to be printed or stored: without
 * addresses of databases.
 */
export function errorText(error: unknown): string {
  const message =
    error instanceof Error ? error.message || (sqlState(error) ?? error.name) : String(error);
  const text = endedConnection.test(message) ? 'PostgreSQL has ended the connection' : message;
  // PostgreSQL stores neither half a character nor the character 0: it would refuse the whole
  // record.
  return withoutUrls(text)
    .replace(/[\s\0]+/g, ' ')
    .trim()
    .slice(0, maxLength)
    .toWellFormed();
}

/**
 * Returns a text that somebody else has chosen as PostgreSQL stores it: without the character 0
 * and halves of characters, for which it would refuse the whole statement.
 */
export function storableText(text: string): string {
  return text.replaceAll('\0', '\ufffd').toWellFormed();
}

/**
 * Returns the name of a field for people: its label, or its name in words: `firstName` → `First
 * name`.
 * @param name in camel or kebab case
 */
export function fieldLabel(
  name: string,
  { label }: { readonly label?: string | undefined } = {},
): string {
  const words = name.replace(/-/g, ' ').replace(/[A-Z]/g, letter => ` ${letter.toLowerCase()}`);
  return label ?? labels[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

const labels: Readonly<Record<string, string>> = {
  slug: 'Tenant',
  email: 'E-mail address',
  adminEmail: 'E-mail address of the administrator',
  kid: 'Key',
  url: 'URL',
  appId: 'Application identifier',
  all: 'All tenants',
};
