import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import { type Field, type Fields, kebabCase, optionFlag } from '../command/operation-fields.ts';

/** An argument of a command, made of a field. */
class FieldArgument extends Argument {
  readonly field: Field;

  constructor(name: string, field: Field) {
    const word = `${kebabCase(name)}${field.isList ? '...' : ''}`;
    super(field.isRequired ? `<${word}>` : `[${word}]`, field.description);
    this.field = field;
    if (field.default !== undefined) this.default(field.default);
    if (field.choices) this.choices(field.choices);
    else this.argParser(parserOf(field));
  }
}

/** An option of a command, made of a field. */
class FieldOption extends Option {
  readonly field: Field;

  constructor(name: string, field: Field) {
    super([optionFlag(name, field), field.placeholder].join(' ').trim(), field.description);
    this.field = field;
    this.negate = false; // `--no-entity` is a flag of its own
    if (field.isRequired) this.makeOptionMandatory();
    if (field.default !== undefined) this.default(field.default);
    if (field.choices) this.choices(field.choices);
    else if (field.parse || field.isList) this.argParser(parserOf(field));
  }
}

/** Returns the field that an argument or option of a command is made of. */
export function fieldOf(made: Argument | Option): Field | undefined {
  return made instanceof FieldArgument || made instanceof FieldOption ? made.field : undefined;
}

/** Adds the fields of an operation to its command. */
export function addFields(command: Command, fields: Fields): void {
  for (const [name, field] of Object.entries(fields))
    if (field.isArgument) command.addArgument(new FieldArgument(name, field));
    else if (optionFlag(name, field) !== undefined) command.addOption(new FieldOption(name, field));
}

/** Returns the values that a command line gives to fields, without defaults; of an optional secret, true. */
export function givenFields(command: Command, fields: Fields): Readonly<Record<string, unknown>> {
  const positions = Object.keys(fields).filter(name => fields[name]?.isArgument);
  const values = Object.entries(fields).map(([name, field]) => {
    if (field.isArgument) return [name, command.processedArgs[positions.indexOf(name)]];
    const key = command.options.find(option => fieldOf(option) === field)?.attributeName() ?? '';
    return [name, command.getOptionValueSource(key) === 'cli' ? command.getOptionValue(key) : undefined];
  });
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}

/** The values of an option that may be repeated are collected. */
function parserOf(field: Field): (text: string, previous: unknown) => unknown {
  return (text, previous) => {
    const value = parse(field, text);
    if (!field.isList) return value;
    return [...(Array.isArray(previous) ? previous : []), value];
  };
}

/** An argument is never empty: `show "$SLUG"` of a script whose variable is not set. Options have rules of their own. */
function parse({ parse, isArgument }: Field, text: string): unknown {
  if (isArgument && text.trim() === '') throw new InvalidArgumentError('It is empty.');
  if (!parse) return text;
  try {
    return parse(text);
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
  }
}
