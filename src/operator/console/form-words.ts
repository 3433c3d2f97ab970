import type { Fields } from '../command/operation-fields.ts';
import { optionFlag } from '../command/operation-fields.ts';
import { fieldLabel } from '../command/texts.ts';
import { command } from './command-line.ts';

/** The names of settings for a reader who does not set them. */
const settings: Readonly<Record<string, string>> = {
  ACQUIRE_TIMEOUT_MS: 'the time for which a request waits for a connection',
  APP_URL: 'the address of the installation',
  BACKUP_IDENTITY_FILE: 'the identity file',
  BACKUP_KEEP: 'the rule for keeping archives',
  BACKUP_RECIPIENTS: 'the configured recipients',
  BACKUP_TARGET: 'the configured target',
  CONNECTION_BUDGET: 'the limit of connections',
  MASTER_KEY: 'the configured master key',
  MASTER_KEY_PREVIOUS: 'the former master key',
};

/**
 * Returns a text of the command line in the words of a form: a flag of the operation is called
 * by its label, a setting by its noun. Commands in the text stay as they are, because a reader
 * may paste them.
 */
export function inWords(text: string, fields: Fields): string {
  const labels = new Map<string, string>([
    ...Object.entries(fields).flatMap(([name, field]): [string, string][] => {
      const flag = field.isArgument ? undefined : optionFlag(name, field);
      return flag === undefined ? [] : [[flag, `“${fieldLabel(name, field)}”`]];
    }),
    ['--dry-run', 'the plan'],
    ['--json', 'the command line'],
  ]);
  const replaced = (part: string): string =>
    part
      .replace(/(--[a-z][\w-]*)( <[^>]+>)?/g, (found, flag: string) => labels.get(flag) ?? found)
      .replace(/\b[A-Z]{2,}(?:_[A-Z]+)+\b/g, found => settings[found] ?? found);

  return text
    .split(command)
    .map((part, at) => (at % 2 === 1 ? part : replaced(part)))
    .join('');
}
