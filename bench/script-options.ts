import { parseArgs } from 'node:util';

/**
 * Reads the options of a bench script; every number option is an integer of at least 1. Prints
 * the usage and ends the process on `--help`, and with status 2 on wrong options.
 * @param usage the npm command, and a sentence about the script
 * @param defaults name and default of each number option
 */
export function readScriptOptions<Name extends string, Flag extends string = never>(
  usage: { command: string; text: string },
  defaults: Record<Name, number>,
  flags: Flag[] = [],
): Record<Name, number> & Record<Flag, boolean> {
  const names = Object.keys(defaults) as Name[];
  const lines = names.map(name => `  --${name} <n>  (default ${defaults[name]})`);
  const help = [
    `Usage: npm run -s ${usage.command} -- [options]`,
    '',
    usage.text,
    '',
    ...lines,
    ...flags.map(flag => `  --${flag}`),
  ];

  try {
    const { values } = parseArgs({
      options: {
        ...Object.fromEntries(names.map(name => [name, { type: 'string' as const }])),
        ...Object.fromEntries([...flags, 'help'].map(flag => [flag, { type: 'boolean' as const }])),
      },
    });

    if (values.help) {
      console.log(help.join('\n'));
      process.exit(0);
    }

    const numbers = names.map(name => [name, integer(name, values[name] ?? defaults[name])]);
    const switches = flags.map(flag => [flag, values[flag] === true]);
    return Object.fromEntries([...numbers, ...switches]);
  } catch (error) {
    console.error(
      `${error instanceof Error ? error.message : error}\n\nSee: npm run -s ${usage.command} -- --help`,
    );
    process.exit(2);
  }
}

function integer(name: string, value: unknown): number {
  const number = Number(value);
  if (Number.isInteger(number) && number >= 1) return number;
  throw new Error(`--${name} must be an integer of at least 1`);
}
