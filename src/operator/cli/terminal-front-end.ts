import { OperatorError } from '../../log/operator-error.ts';
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
      if (!confirm || yes) return;
      const { name, consequence, kind = 'slug' } = confirm;
      if (!canAsk())
        throw new OperatorError(`${name} ${consequence}. Add --yes to confirm; nothing was changed`, { usage: true });
      const typed = await readAnswer(`${name} ${consequence}.\nType its ${kind} to confirm`);
      if (typed !== name) throw new OperatorError(`That is not ${name}: nothing was changed`, { usage: true });
    },
    showPlan: ({ document, text, isLines }, output) => {
      if (isLines && output.wantsDocuments && Array.isArray(document))
        for (const each of document) output.part(each, text);
      else output.result(document, text);
    },
  };
}
