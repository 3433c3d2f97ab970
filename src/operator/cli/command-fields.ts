import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import { type Field, type Fields, kebabCase, optionFlag } from '../command/operation-fields.ts';

const fieldsOf = new WeakMap<Argument | Option, Field>();

/** Returns the field from which an argument or option of a command was made. */
export function fieldOf(made: Argument | Option): Field | undefined {
  return fieldsOf.get(made);
}

/** Adds the fields of an operation to its command. */
export function addFields(command: Command, fields: Fields): void {
  for (const [name, field] of Object.entries(fields)) {
    const { isRequired, placeholder } = field;
    const description = descriptionOf(field);
    const word = `${kebabCase(name)}${field.isList ? '...' : ''}`;
    const flag = optionFlag(name, field);
    if (field.isArgument) {
      command.addArgument(
        made(new Argument(isRequired ? `<${word}>` : `[${word}]`, description), field),
      );
    } else if (flag !== undefined) {
      const option = new Option(`${flag} ${placeholder}`.trim(), description).makeOptionMandatory(
        isRequired,
      );
      option.negate = false; // `--no-entity` is a flag of its own
      command.addOption(made(option, field));
    }
  }
}

/** Returns the help text of a field, with the way to give several values, and the default. */
function descriptionOf({
  description,
  isArgument,
  isList,
  isNames,
  choices,
  otherwise,
  default: initial,
}: Field): string {
  const repeated = isList && !isArgument ? '; may be repeated' : '';
  const names =
    (isList || isNames) && choices
      ? `${isNames ? ', separated by commas' : ''}: ${choices.join(', ')}`
      : '';
  const without =
    otherwise !== undefined && initial === undefined ? ` (default: ${otherwise})` : '';
  return description + names + repeated + without;
}

function made<Part extends Argument | Option>(part: Part, field: Field): Part {
  const { choices, isList, isNames, default: initial, otherwise } = field;
  fieldsOf.set(part, field);
  if (initial !== undefined) part.default(initial, otherwise);
  if (choices && !isList && !isNames) part.choices(choices);
  else part.argParser(parserOf(field));
  return part;
}

/**
 * Returns the values that a command line gives to fields, without defaults; of an optional
 * secret, true.
 */
export function givenFields(command: Command, fields: Fields): Readonly<Record<string, unknown>> {
  const positions = Object.keys(fields).filter(name => fields[name]?.isArgument);
  const values = Object.entries(fields).map(([name, field]) => {
    if (field.isArgument) return [name, command.processedArgs[positions.indexOf(name)]];
    const key = command.options.find(option => fieldOf(option) === field)?.attributeName() ?? '';
    return [
      name,
      command.getOptionValueSource(key) === 'cli' ? command.getOptionValue(key) : undefined,
    ];
  });
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}

/**
 * Returns the parser of an option. It collects the values of an option that may be repeated.
 */
function parserOf(field: Field): (text: string, previous: unknown) => unknown {
  return (text, previous) => {
    const value = parse(field, text);
    if (!field.isList) return value;
    return [...(Array.isArray(previous) ? previous : []), value];
  };
}

/**
 * Parses a value. Refuses an empty argument, as in `show "$SLUG"` of a script whose variable is
 * not set. Options have rules of their own.
 */
function parse({ parse, isArgument, isList, choices }: Field, text: string): unknown {
  if (isArgument && text.trim() === '') throw new InvalidArgumentError('It is empty.');
  if (isList && choices && !choices.includes(text)) {
    throw new InvalidArgumentError(`Allowed choices are ${choices.join(', ')}.`);
  }
  if (!parse) return text;
  try {
    return parse(text);
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
  }
}
