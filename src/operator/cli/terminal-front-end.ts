import { confirmPlan } from './confirm-plan.ts';
import type { FrontEnd } from './front-end.ts';
import { createOutput } from './output.ts';
import { canAsk, readAnswer } from './read-answer.ts';
import { TerminalProgress } from './terminal-progress.ts';

/** Creates the front end of a terminal or of a script. */
export function createTerminalFrontEnd(): FrontEnd {
  const progress = new TerminalProgress();
  return {
    progress,
    output: isRepeated => createOutput(isRepeated, progress.clear),
    agree: async question => {
      progress.end();
      return canAsk() ? (await readAnswer(`${question}.\nType yes to go on`)) === 'yes' : undefined;
    },
    found: () => {}, // the exit code says it
    confirm: async ({ confirm }, yes) => {
      if (confirm) await confirmPlan(confirm, yes);
    },
    showPlan: ({ document, text, isLines }, output) => {
      if (isLines && output.wantsDocuments && Array.isArray(document))
        for (const each of document) output.part(each, text);
      else output.result(document, text);
    },
  };
}
