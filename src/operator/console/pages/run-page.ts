import type { ConsolePage } from '../console-page.ts';
import type { Run } from '../console-run.ts';
import type { Answer, PageRequest } from '../console-services.ts';
import { runPath, runText, runView } from '../run-view.ts';

/** The page of a run; for everybody but the visitor who has started it, without its result. */
export function runPage(request: PageRequest): ConsolePage {
  return runView(request, request.services.runs.find(String(request.params.id)));
}

/** The result of a run, as text. */
export function runOutput(request: PageRequest): string {
  return runText(find(request));
}

/** Does what was planned. */
export function performPlan(request: PageRequest): Answer {
  const plan = find(request);
  const typed = request.query('typed') ?? '';
  const confirm = plan.last.plan?.confirm;
  if (confirm && typed !== confirm.name)
    return runView(request, plan, [{ id: 'typed', text: `Type ${confirm.name} to confirm` }]);
  return { to: runPath(request.services.runs.perform(plan, request.visitor, typed)) };
}

/** Ends a run early. */
export function cancelRun(request: PageRequest): Answer {
  const run = find(request);
  run.interrupt();
  return { to: runPath(run) };
}

function find({ services: { runs }, params: { id = '' }, visitor }: PageRequest): Run {
  return runs.findOwn(id, visitor);
}
