import { type Command, InvalidArgumentError } from 'commander';
import { OperatorError } from '../../operator-error.ts';
import { parseAge } from '../retention/retention-age.ts';
import { withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { addApplyRetention } from './retention-apply-command.ts';
import { removalRow, retentionRow } from './retention-text.ts';
import { tableText } from './text-table.ts';

interface RetentionOptions extends OutputOptions {
  default?: boolean;
  activity?: string;
  audit?: string;
}

const help = `
Without a retention, activities and audit entries are kept for ever. Ages are days, months or years (90d, 18m, 2y), at
least 30 days, or forever; "default" gives a tenant the default again. Setting one removes nothing: retention apply does.`;

/** Adds `retention` and its subcommands: how long tenants keep activities and audit entries. */
export function addRetentionCommands(program: Command): void {
  const retention = program
    .command('retention')
    .description('show or set how long a tenant keeps activities and audit entries')
    .argument('[slug]', 'without it: all tenants')
    .option('--default', 'the default of all tenants')
    .option('--activity <age>', 'how long activities are kept: 90d, 18m, 2y or forever', parseAgeOption)
    .option('--audit <age>', 'how long audit entries are kept', parseAgeOption)
    .option(...jsonOption)
    .addHelpText('after', help)
    .action(
      withStatements(async (control, slug: string | undefined, options: RetentionOptions) => {
        const { activity, audit } = options;
        if (slug !== undefined && options.default)
          throw new OperatorError('Name a tenant, or give --default: not both', { usage: true });
        const { readDefault, readRetention, setRetention } = await import('../retention/policies.ts');
        if (activity !== undefined || audit !== undefined) {
          if (slug === undefined && !options.default)
            throw new OperatorError('Name a tenant, or give --default for all of them', { usage: true });
          await setRetention(control, slug ?? null, { activity, audit });
        }
        const defaults = await readDefault(control);
        const document = { activity: defaults.activity ?? 'forever', audit: defaults.audit ?? 'forever' };
        if (options.default) {
          printResult(options, document, () => tableText([{ tenant: '(default)', ...document }], ''));
          return;
        }
        const tenants = await readRetention(control, slug);
        printResult(options, slug === undefined ? { default: document, tenants } : tenants[0], () =>
          tableText([retentionRow({ slug: '(default)', ...document }), ...tenants.map(retentionRow)], ''),
        );
      }),
    );
  addApplyRetention(retention);
  addLog(retention);
}

function addLog(retention: Command): void {
  retention
    .command('log')
    .description('list what was removed, the newest first, and the archives that have it')
    .argument('[slug]', 'only from one tenant')
    .option(...jsonOption)
    .action(
      withStatements(async (control, slug: string | undefined, options: OutputOptions) => {
        const { listRemovals } = await import('../retention/list-removals.ts');
        const removals = await listRemovals(control, slug);
        printResult(options, removals, () => tableText(removals.map(removalRow), 'Nothing was removed.'));
      }),
    );
}

function parseAgeOption(text: string): string {
  const age = text === 'default' ? text : parseAge(text);
  if (age === undefined) throw new InvalidArgumentError('Give 90d, 18m, 2y or such, at least 30 days, or forever.');
  return age;
}
