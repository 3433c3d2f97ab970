import type { Argument, Command, Option } from 'commander';
import { kindOf } from '../completion/complete.ts';
import { isNamed, positionAfter } from '../completion/position.ts';
import { readAnswer } from './read-answer.ts';

/** Fields that a command needs although its definition has them as optional, unless an option stands in for them. */
const needed: Readonly<Record<string, { fields: readonly string[]; unless: string }>> = {
  provision: { fields: ['slug', 'name', 'adminEmail'], unless: '--file' },
  move: { fields: ['slug', 'to'], unless: '--back' },
};

/**
 * Asks on the terminal for the arguments and options that a command line lacks. Tab completes a tenant, a user and
 * whatever else the control database has. An empty answer ends the questions: the command then names what is missing.
 * @param args from the name of the command on
 * @returns the arguments with the answers
 */
export async function askMissing(program: Command, args: readonly string[]): Promise<string[]> {
  const { command, operands, option } = positionAfter(program, args);
  const answered = [...args];
  if (option || args.some(arg => ['help', '--help', '-h', '--'].includes(arg))) return answered;
  let slug = operands[0];
  for (const field of missingFields(command, operands.length, args)) {
    const answer = await ask(command, field, slug);
    if (answer === '') return answered;
    slug ??= answer;
    if (isOption(field)) answered.push(`${field.long}=${answer}`);
    else answered.push(...(field.variadic ? answer.split(/\s+/) : [answer]));
  }
  return answered;
}

function missingFields(command: Command, given: number, args: readonly string[]): (Argument | Option)[] {
  const { fields = [], unless = '' } = needed[command.name()] ?? {};
  const also = args.includes(unless) ? [] : fields;
  const isGiven = (option: Option): boolean =>
    args.some(arg => isNamed(option, arg) || arg.startsWith(`${option.long}=`));
  return [
    ...command.registeredArguments.slice(given).filter(each => each.required || also.includes(each.name())),
    ...command.options.filter(each => (each.mandatory || also.includes(each.attributeName())) && !isGiven(each)),
  ];
}

function ask(command: Command, field: Argument | Option, slug: string | undefined): Promise<string> {
  const name = isOption(field) ? field.attributeName() : field.name();
  const choices = field.argChoices;
  const kind = kindOf(command, name);
  const hint = choices?.join(', ') ?? (kind ? 'Tab shows what there is' : field.description);
  const label = labels[name] ?? name;
  return readAnswer(hint ? `${label} (${hint})` : label, async start => {
    if (choices || !kind) return choices?.filter(choice => choice.startsWith(start)) ?? [];
    const { storedValues } = await import('../completion/stored-values.ts');
    return (await storedValues(kind, start, slug)).map(({ value }) => value);
  });
}

function isOption(field: Argument | Option): field is Option {
  return 'attributeName' in field;
}

const labels: Readonly<Record<string, string>> = {
  slug: 'Tenant',
  'new-slug': 'New slug',
  email: 'E-mail address',
  adminEmail: 'E-mail address of the administrator',
  kid: 'Key',
  name: 'Name',
  role: 'Role',
  permissions: 'Permissions',
  capacity: 'Capacity',
  to: 'To',
};
