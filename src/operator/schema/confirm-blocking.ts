import { OperatorError } from '../../lib/log/operator-error.ts';
import type { Context } from '../command/operation.ts';
import { flag } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import type { BlockingProcess } from './blocking-processes.ts';

/** The field of every operation that running processes can block. */
export const despiteRunning = flag('go on although running processes block the change', {
  label: 'Despite running processes',
  isAdvanced: true,
});

type NamedProcess = Pick<BlockingProcess, 'host' | 'pid' | 'build'>;

const maxNamed = 10;

/**
 * Asks the operator whether a change goes on that running processes block. A script goes on
 * with `--despite-running`.
 * @param textOf returns a sentence that names the processes and what they would lose, without
 *   its full stop
 * @throws {OperatorError} when the operator says no, or nobody can be asked
 */
export async function confirmBlocking<P extends NamedProcess>(
  blockedBy: P[],
  textOf: (blockedBy: P[]) => string,
  goesOn: boolean,
  { agree }: Pick<Context, 'agree'>,
): Promise<void> {
  if (blockedBy.length === 0 || goesOn) return;
  const text = textOf(blockedBy);
  const agreed = await agree(text);
  if (agreed) return;
  throw new OperatorError(
    agreed === undefined ? `${text}. ${remedy}; nothing was changed` : 'Nothing was changed',
    { blockedBy },
  );
}

const remedy = 'Stop them first, or add --despite-running to go on';

/** Returns the part of a plan about the processes that block it: see `confirmBlocking`. */
export function planBlocking<P extends NamedProcess>(
  blockedBy: P[],
  textOf: (blockedBy: P[]) => string,
  goesOn: boolean,
): { readonly hasFailed: boolean; readonly lines: string[] } {
  if (blockedBy.length === 0) return { hasFailed: false, lines: [] };

  const text = `${textOf(blockedBy)}.`;

  return goesOn
    ? { hasFailed: false, lines: [text] }
    : { hasFailed: true, lines: [`Refused: ${text} ${remedy}.`] };
}

/**
 * Names the processes that block a change, and their losses, as a sentence without its full
 * stop.
 */
export function blockingText(blockedBy: BlockingProcess[]): string {
  const tenants = Math.max(...blockedBy.map(process => process.tenants ?? 0));
  const subject = countText(blockedBy.length, 'running process', 'running processes');
  const loss =
    tenants > 0 ? `would stop serving ${countText(tenants, 'tenant')}` : 'could not start again';
  return `${subject} ${loss}: ${processNames(blockedBy, ({ head }) => (head === null ? '' : ` with ${head}`))}`;
}

/** @param detailOf returns the text after the build of a process */
function processNames<P extends NamedProcess>(
  processes: P[],
  detailOf: (process: P) => string,
): string {
  const named = processes
    .slice(0, maxNamed)
    .map(
      process => `${process.host} pid ${process.pid} (build ${process.build}${detailOf(process)})`,
    );
  if (processes.length > maxNamed) named.push(`and ${processes.length - maxNamed} more`);
  return named.join(', ');
}
