import { OperatorError } from '../../lib/log/operator-error.ts';
import { pageText } from '../command/list-parts.ts';
import type { Output, Plan } from '../command/operation.ts';
import type { RunMessage } from '../command/run-message.ts';
import { cellText } from '../command/text-table.ts';
import { type FrontEnd, printWarning } from './output.ts';

const countIntervalMs = 100;

/**
 * Creates the front end of a command that the console runs: it sends the results of the command
 * to the parent process. Warnings and errors go to stderr. A command whose console is gone goes
 * on silently.
 * @param isPlanned true for a command whose plan the operator has seen: it runs only if the
 *   plan is still the same
 */
export function createConsoleFrontEnd(isPlanned: boolean): FrontEnd {
  process.stderr.on('error', () => {}); // a pipe to the console
  const send = (message: RunMessage): void => {
    if (process.connected) process.send?.(message, () => {});
  };

  return {
    progress: createProgress(send),
    output: () => createOutput(send),
    isPlanned,
    agree: async () => undefined,
    confirm: async plan => {
      const { confirm } = plan;
      send({ kind: 'confirm', steady: steadyOf(plan) });

      const answer = await receive();
      if (answer === false) throw new OperatorError('The plan has changed. Make it again');
      if (confirm && answer !== confirm.name) {
        throw new OperatorError(`That is not ${confirm.name}: nothing was changed`, {
          usage: true,
        });
      }
    },
    found: () => send({ kind: 'found' }),
    showPlan: plan => {
      const { text, hasFailed = false, confirm = null } = plan;
      send({ kind: 'plan', text: text(), hasFailed, confirm, steady: steadyOf(plan) });
    },
  };
}

const steadyOf = ({ steady, text }: Plan): string => steady ?? text();

/**
 * Returns the next message of the parent process; undefined when the parent is gone. Leaves no
 * listener, which would keep this process alive.
 */
function receive(): Promise<unknown> {
  return new Promise(resolve => {
    const end = (message?: unknown): void => {
      process.off('message', end).off('disconnect', end);
      resolve(message);
    };
    process.on('message', end).on('disconnect', end);
    if (!process.connected) end();
  });
}

function createOutput(send: (message: RunMessage) => void): Output {
  const sendText = (text: () => string): void => send({ kind: 'text', text: text() });

  const list: Output['list'] = (items, { row, wide, empty }) => {
    const all = items.map((item): Record<string, unknown> => ({ ...row(item), ...wide?.(item) }));
    const columns = Object.keys(all[0] ?? {});
    if (all.length === 0) return sendText(() => empty);

    send({
      kind: 'list',
      columns,
      rows: all.map(each => columns.map(column => cellText(each[column]))),
    });
  };

  return {
    wantsDocuments: false,
    result: (_, text) => sendText(text),
    part: (_, text) => sendText(text),
    text: sendText,
    list,
    page: (page, text) => {
      list(page.items, text);
      const part = pageText(page);
      const next = page.older === null ? '' : ` Older ones: those before ${page.older}.`;
      if (part !== undefined) sendText(() => `${part}.${next}`);
    },
    warn: printWarning,
  };
}

function createProgress(send: (message: RunMessage) => void): FrontEnd['progress'] {
  let [total, done, bad, sentAt] = [0, 0, 0, 0];
  let badly = '';

  const count = (): void => {
    sentAt = performance.now();
    send({ kind: 'count', total, done, bad, badly });
  };

  return {
    isVisible: false, // each outcome is printed
    get counts() {
      return total > 0;
    },
    step: text => send({ kind: 'step', text }),
    start: (number, word = 'failed') => {
      [total, done, bad] = [number, 0, 0];
      badly = word;
      count();
    },
    advance: isBad => {
      done++;
      if (isBad) bad++;
      if (done === total || performance.now() - sentAt > countIntervalMs) count();
    },
    end: () => {
      if (total > 0) count();
    },
  };
}
