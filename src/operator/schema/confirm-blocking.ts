import { OperatorError } from '../../log/operator-error.ts';
import { countText } from '../command/count-text.ts';
import type { Context } from '../command/operation-context.ts';
import { flag } from '../command/operation-fields.ts';
import type { BlockingProcess } from './blocking-processes.ts';

/** The field of every operation that running processes can block. */
export const despiteRunning = flag('go on although running processes block the change');

const maxNamed = 10;

/**
 * Asks the operator whether a change goes on that running processes block. A script goes on with `--despite-running`.
 * @throws {OperatorError} when the operator says no, or nobody can be asked
 */
export async function confirmBlocking(
  blockedBy: BlockingProcess[],
  goesOn: boolean,
  { agree }: Pick<Context, 'agree'>,
): Promise<void> {
  if (blockedBy.length === 0 || goesOn) return;
  const text = blockingText(blockedBy);
  const agreed = await agree(text);
  if (agreed) return;
  const remedy = 'Stop them first, or add --despite-running to go on; nothing was changed';
  throw new OperatorError(agreed === undefined ? `${text}. ${remedy}` : 'Nothing was changed', { blockedBy });
}

/** Names the processes that block a change, and what they would lose, as a sentence without its full stop. */
export function blockingText(blockedBy: BlockingProcess[]): string {
  const tenants = Math.max(...blockedBy.map(process => process.tenants ?? 0));
  const subject = countText(blockedBy.length, 'running process', 'running processes');
  const loss = tenants > 0 ? `would stop serving ${countText(tenants, 'tenant')}` : 'could not start again';
  const named = blockedBy
    .slice(0, maxNamed)
    .map(({ host, pid, build, head }) => `${host} pid ${pid} (build ${build}${head === null ? '' : ` with ${head}`})`);
  if (blockedBy.length > maxNamed) named.push(`and ${blockedBy.length - maxNamed} more`);
  return `${subject} ${loss}: ${named.join(', ')}`;
}
