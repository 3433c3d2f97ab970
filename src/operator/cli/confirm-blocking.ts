import { createInterface } from 'node:readline/promises';
import { OperatorError } from '../../operator-error.ts';
import type { BlockingProcess } from '../migrations/blocking-processes.ts';

/** Flags and description of `--despite-running`, for `Command.option`. */
export const despiteRunningOption = ['--despite-running', 'go on although running processes block the change'] as const;

export interface DespiteRunningOptions {
  despiteRunning?: boolean;
}

const maxNamed = 10;

/**
 * Asks the operator whether a change goes on that running processes block. A script goes on with `--despite-running`.
 * @throws {OperatorError} when the operator says no, or stdin is no terminal
 */
export async function confirmBlocking(
  blockedBy: BlockingProcess[],
  { despiteRunning = false }: DespiteRunningOptions,
): Promise<void> {
  if (blockedBy.length === 0 || despiteRunning) return;
  const text = blockingText(blockedBy);
  if (!process.stdin.isTTY) {
    const remedy = `Stop them first, or add --despite-running to go on; nothing was changed`;
    throw new OperatorError(`${text}. ${remedy}`, { blockedBy });
  }
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const typed = await terminal
    .question(`${text}.\nType yes to go on: `)
    .catch(() => '\n') // Ctrl-C or Ctrl-D
    .finally(() => terminal.close());
  if (typed === '\n') process.stderr.write('\n');
  if (typed.trim() !== 'yes') throw new OperatorError('Nothing was changed', { blockedBy });
}

/** Names the processes that block a change, and what they would lose, as a sentence without its full stop. */
export function blockingText(blockedBy: BlockingProcess[]): string {
  const tenants = Math.max(...blockedBy.map(process => process.tenants ?? 0));
  const subject = count(blockedBy.length, 'running process', 'running processes');
  const loss = tenants > 0 ? `would stop serving ${count(tenants, 'tenant', 'tenants')}` : 'could not start again';
  const named = blockedBy
    .slice(0, maxNamed)
    .map(({ host, pid, build, head }) => `${host} pid ${pid} (build ${build}${head === null ? '' : ` with ${head}`})`);
  if (blockedBy.length > maxNamed) named.push(`and ${blockedBy.length - maxNamed} more`);
  return `${subject} ${loss}: ${named.join(', ')}`;
}

function count(number: number, one: string, many: string): string {
  return `${number} ${number === 1 ? one : many}`;
}
