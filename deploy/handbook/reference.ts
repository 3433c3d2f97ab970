import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { catalogue } from '../../src/operator/cli/catalogue.ts';
import { fieldOf } from '../../src/operator/cli/command-fields.ts';
import { createProgram } from '../../src/operator/cli/program.ts';
import {
  groups,
  type Operation,
  operationsOf,
  takesYes,
} from '../../src/operator/command/operation.ts';
import { metricDefinitions } from '../grafana/metric-definitions.ts';
import { type Row, withTable } from './with-table.ts';

export const referenceFile = new URL('../../docs/operate/reference.md', import.meta.url);
const settingsFile = new URL('../../.env.example', import.meta.url);

/**
 * Returns the reference of the handbook, with the tables of the settings, commands and metrics
 * of this build.
 */
export async function referenceText(): Promise<string> {
  const settings = settingRows(await readFile(settingsFile, 'utf8'));
  const page = withTable(
    await readFile(referenceFile, 'utf8'),
    'Settings',
    ['Variable', 'Default', 'Meaning'],
    settings,
  );
  const program = await createProgram(() => true);
  const operations = await Promise.all(
    catalogue.map(async topic => ({ group: topic.group, operations: await operationsOf(topic) })),
  );
  const withCommands = groups.reduce((text, group) => {
    const rows = operations.filter(each => each.group === group).flatMap(each => each.operations);
    const table = rows.map(operation => commandRow(program, operation));
    return withTable(text, group, ['Command', 'Options', 'What it does'], table);
  }, page);
  return withTable(withCommands, 'Metrics', ['Metric', 'Type', 'Labels', 'Meaning'], metricRows());
}

/**
 * Returns the rows of the settings, from `.env.example`: one comment for each. A default is a
 * line without `#`.
 */
function settingRows(example: string): Row[] {
  return [...example.matchAll(/((?:^# .*\n)+)(#?)([A-Z_]+)=(.*)$/gm)].map(
    ([, comment = '', commented, name = '', value = '']) => [
      code(name),
      commented ? '–' : code(value),
      comment.replace(/^# /gm, '').trim().replaceAll('\n', ' '),
    ],
  );
}

/** Returns the row of a command: with what it needs, its other options, and what it does. */
function commandRow(program: Command, operation: Operation): Row {
  const { name, help, plan } = operation;
  const command = name
    .split(' ')
    .reduce((at, word) => at.commands.find(each => each.name() === word) ?? at, program);
  const given = command.registeredArguments.map(argument => {
    const word = `${argument.name()}${argument.variadic ? '…' : ''}`;
    return argument.required ? `<${word}>` : `[${word}]`;
  });
  const own = command.options.filter(option => fieldOf(option));
  const needed = own.filter(({ mandatory }) => mandatory).map(({ flags }) => flags);
  const others = own.filter(({ mandatory }) => !mandatory).map(({ long }) => long ?? '');
  return [
    code([name, ...given, ...needed].join(' ')),
    [...others, ...(takesYes(operation) ? ['--yes'] : []), ...(plan ? ['--dry-run'] : [])]
      .map(code)
      .join(' '),
    `${help.description[0]?.toUpperCase()}${help.description.slice(1)}`,
  ];
}

function metricRows(): Row[] {
  const own = metricDefinitions().filter(({ name }) => !/^(process|nodejs)_/.test(name));
  return own.map(({ name, type, labelNames, help }) => [
    code(name),
    type,
    labelNames.map(code).join(' '),
    help,
  ]);
}

function code(text: string): string {
  return `\`${text}\``;
}
