import { type Command, InvalidArgumentError } from 'commander';
import { OperatorError } from '../../operator-error.ts';
import { onStopSignal } from '../../signals.ts';
import { countText } from '../count-text.ts';
import { createFenceGuard } from '../move/fence-guard.ts';
import type { MoveStep } from '../move/move-protocol.ts';
import type { MoveSummary } from '../move/read-moves.ts';
import type { MoveObservers } from '../move/run-move.ts';
import { withInstallation, withStatements } from './command.ts';
import { confirmName } from './confirm-name.ts';
import { jsonOption, type OutputOptions, printPart, printResult, showsProgress } from './output.ts';
import { printList } from './print-list.ts';
import { fieldsText, tableText } from './text-table.ts';

export interface MoveOptions extends OutputOptions {
  pause: number;
  keep: number;
}

const help = `
The data is copied while the tenant is served. Then its requests wait while what has changed meanwhile is copied and
compared; cached responses are served all the time. At the end every process uses the new database. Requests do not
fail as long as the pause is shorter than ACQUIRE_TIMEOUT_MS. The old database is kept, closed, for --keep hours.

A move that fails or is killed leaves the tenant in the database that it had. Run the command again: it goes on.`;

/** Adds `move` and its subcommands: moves of tenants to other servers. */
export function addMoveCommands(program: Command): void {
  const move = program
    .command('move')
    .description('move a tenant to another PostgreSQL server; its requests wait meanwhile, and do not fail')
    .argument('[slug]')
    .option('--to <server>', 'the name of the server')
    .option('--back', 'move it back to the server that it was moved from')
    .option('--plan', 'show what would be moved, and change nothing')
    .addHelpText('after', help)
    .action(
      withInstallation(
        async (
          installation,
          slug: string | undefined,
          options: MoveOptions & { to?: string; back?: boolean; plan?: boolean },
        ) => {
          if (slug === undefined || (options.to === undefined) === (options.back !== true))
            throw new OperatorError('Name a tenant, and give either --to <server> or --back', { usage: true });
          if (options.plan && options.to !== undefined) {
            const { planMove } = await import('../move/plan-move.ts');
            const plan = await planMove(installation, slug, options.to);
            printResult(options, plan, () => fieldsText(plan));
            return;
          }
          const { moveBack, moveTenant } = await import('../move/moves.ts');
          const request = { keepSeconds: options.keep * 3_600, maxPauseMs: options.pause * 1_000 };
          const observers = observe(options);
          const moved =
            options.to === undefined
              ? await moveBack(installation, slug, request, observers)
              : await moveTenant(installation, slug, { ...request, to: options.to }, observers);
          printMoved(options, moved);
        },
      ),
    );
  addMoveOptions(move);
  addList(move);
  addResume(move);
  addSettle(move);
}

/** Adds the options that every command has that moves tenants. */
export function addMoveOptions(command: Command): Command {
  return command
    .option('--pause <seconds>', 'maximum estimated time for which requests wait', parseSeconds, 1)
    .option('--keep <hours>', 'how long the old database is kept for --back', parseHours, 24)
    .option('--json', 'print JSON lines on stdout: the steps, and at the end the move');
}

function addList(move: Command): void {
  move
    .command('list')
    .description('list the moves, the newest first')
    .option(...jsonOption)
    .action(
      withStatements(async (control, options: OutputOptions) => {
        const { listMoves } = await import('../move/read-moves.ts');
        const moves = await listMoves(control);
        printList(options, moves, {
          row: moveRow,
          wide: ({ oldDatabase }) => ({ 'old database': oldDatabase }),
          name: ({ id }) => id,
          empty: 'No tenant was moved.',
        });
      }),
    );
}

function moveRow({ id, slug, from, to, state, pauseMs, reversibleUntil, error }: MoveSummary): object {
  const pause = pauseMs === null ? '–' : `${pauseMs} ms`;
  return { id, slug, from, to, state, pause, 'back until': reversibleUntil, error };
}

function addResume(move: Command): void {
  const resume = move
    .command('resume')
    .description('go on with the unfinished move of a tenant')
    .argument('<slug>')
    .option('--json', 'print JSON lines on stdout: the steps, and at the end the move')
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions) => {
        const { resumeMove } = await import('../move/moves.ts');
        printMoved(options, await resumeMove(installation, slug, 'switch', observe(options)));
      }),
    );
  resume.addHelpText('after', '\nThe tenant is back in service within a second, while the data is copied again.');
  move
    .command('abort')
    .description('give up the unfinished move of a tenant, and drop the new database')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions) => {
        const { resumeMove } = await import('../move/moves.ts');
        const moved = await resumeMove(installation, slug, 'abort');
        printResult(options, moved, () => `The move of ${slug} is aborted. It is served by ${moved.from}, as before.`);
      }),
    );
}

function addSettle(move: Command): void {
  move
    .command('settle')
    .description(
      'drop the old databases of moved tenants whose time has passed; with a slug, those of a tenant at once',
    )
    .argument('[slug]')
    .option('--yes', 'do not ask for confirmation')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string | undefined, options: OutputOptions & { yes?: boolean }) => {
        const { settleMoves } = await import('../move/moves.ts');
        const { slugsToSettle } = await import('../move/read-moves.ts');
        if (slug !== undefined)
          await confirmName(slug, 'can not be moved back any more: its old database will be dropped', options.yes);
        const settled: MoveSummary[] = [];
        for (const each of slug === undefined ? await slugsToSettle(installation) : [slug])
          settled.push(...(await settleMoves(installation, each)));
        const rows = settled.map(move => ({ slug: move.slug, server: move.from, dropped: move.oldDatabase }));
        printResult(options, settled, () => tableText(rows, 'There was no old database to drop.'));
      }),
    );
}

/** Prints the steps, and lets Ctrl-C interrupt a move where nothing waits for it. */
export function observe(options: OutputOptions): MoveObservers {
  const interrupted = new AbortController();
  const startedAt = performance.now();
  onStopSignal(
    ['SIGINT', 'SIGTERM'],
    () => {
      interrupted.abort();
      process.stderr.write('Interrupted: the move ends with the next step at which the tenant is served.\n');
    },
    () => process.exit(130),
  );
  return {
    guard: createFenceGuard('move'),
    signal: interrupted.signal,
    onStep: (slug, step) => {
      const document = { slug, step: stepText(step), ms: Math.round(performance.now() - startedAt) };
      if (options.json) printPart(options, document, () => '');
      else if (showsProgress()) process.stderr.write(`\r\x1b[K${slug}: ${document.step}`);
    },
  };
}

function stepText(step: MoveStep): string {
  return step.kind === 'enter' ? step.to : step.kind;
}

function printMoved(options: OutputOptions, move: MoveSummary): void {
  if (showsProgress()) process.stderr.write('\r\x1b[K');
  const { slug, from, to, rows, pauseMs, reversibleUntil } = move;
  const text =
    `${slug} is on ${to} now: ${countText(rows ?? 0, 'row')}, of which the changed ones were copied and compared while its requests waited ` +
    `for ${pauseMs} ms. Until ${reversibleUntil} it can be moved back to ${from}: npx backoffice move ${slug} --back`;
  if (options.json) printPart(options, move, () => text);
  else printResult(options, move, () => text);
}

function parseSeconds(value: string): number {
  if (!/^\d{1,4}(\.\d{1,3})?$/.test(value) || Number(value) === 0)
    throw new InvalidArgumentError('Give a number of seconds above 0.');
  return Number(value);
}

function parseHours(value: string): number {
  if (!/^\d{1,4}(\.\d{1,3})?$/.test(value)) throw new InvalidArgumentError('Give a number of hours.');
  return Number(value);
}
