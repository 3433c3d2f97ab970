import { createHash } from 'node:crypto';
import { type Html, html } from '../../../lib/html/html.ts';
import { explain, OperatorError } from '../../../lib/log/operator-error.ts';
import { groups, needsConfirmation } from '../../command/operation.ts';
import type { FilledForm } from '../command-line.ts';
import type { Answer, ConsolePage, PageRequest } from '../console-page.ts';
import {
  checkForm,
  type FormError,
  formId,
  formValues,
  outsideLabels,
  readFilledForm,
} from '../form-values.ts';
import { formPage } from '../form-view.ts';
import { state } from '../format.ts';
import { operationLink, type Query } from '../links.ts';
import { type Offer, type Offered, withheld } from '../offered.ts';
import { needsRecoveryHost, recoveryHostText } from '../recovery-host.ts';
import { runPath, runText, runView } from '../run-view.ts';
import type { Run } from '../runs.ts';
import { table } from '../view.ts';

/** A run that ends within this time, in ms, is shown as ended. */
const quickMs = 800;

/** All operations, by group. */
export function commandsPage({ offered }: PageRequest): ConsolePage {
  const byGroup = Map.groupBy(offered.values(), ({ group }) => group);
  const main = html`<p>Everything that the command line does. Each form shows its plan, runs, or becomes a command to copy.</p>
${groups.map(group => commandTable(group, byGroup.get(group) ?? []))}`;
  return { title: 'Commands', main };
}

/**
 * Commands with what each does.
 * @param fields that the links fill in
 */
export function commandTable(
  caption: string,
  commands: readonly Offered[],
  fields: Query = {},
): Html {
  return table(caption, commands, '', [
    ['Command', ({ operation: { name } }) => operationLink(name, name, fields)],
    [
      'What it does',
      ({ operation }) =>
        html`${operation.help.description}${needsConfirmation(operation) ? html` ${state(operation.effect, 'bad')}` : ''}`,
    ],
  ]);
}

/** The form of an operation, with the values that a link fills in. */
export function operationPage(request: PageRequest): Promise<ConsolePage> {
  const found = findOperation(request);
  return formPage(request, found, readFilledForm(found, request.given));
}

/** Starts the operation of a form, or its plan, or shows it as a command. */
export async function startOperation(request: PageRequest): Promise<Answer> {
  const { offered, runs, visitor, given, isStale } = request;
  const found = findOperation(request);
  const { operation, isAllowed } = found;

  const form = readFilledForm(found, given);
  if (isStale) return formPage(request, found, form, [{ id: formId, text: staleText }]);

  const step = given.get('step');
  if (step === 'fill') return formPage(request, found, form);

  const errors = [...checkForm(form), ...otherCommand(form, offered)];
  if (errors.length > 0 || step === 'command') {
    return formPage(request, found, form, errors, errors.length === 0);
  }

  const refuse = (text: string) => formPage(request, found, form, [{ id: formId, text }]);
  const isReader = !isAllowed;
  if (isReader && (step === 'run' || !operation.plan)) return refuse(notRunText(operation.name));

  const outside = outsideLabels(form);
  if (isReader && outside.length > 0) return refuse(noPlanText(operation.name, outside));

  const isElsewhere = needsRecoveryHost(form, request.control);
  if (isElsewhere && !operation.plan) {
    return formPage(request, found, form, [{ id: formId, text: recoveryHostText }], true);
  }

  const isConfirmed =
    needsConfirmation(operation) || operation.handling.confirms?.(formValues(form)) === true;
  const isPlan = operation.plan !== undefined && (step !== 'run' || isConfirmed || isElsewhere);

  try {
    // Two clicks send the same; a page that is loaded again has another `form`.
    const submission = createHash('sha256').update(given.toString()).digest('base64url');
    const run = runs.start(form, { by: visitor.name, isPlan, submission });
    await Promise.race([run.ended, new Promise(resolve => setTimeout(resolve, quickMs).unref())]);
    return { to: runPath(run) };
  } catch (error) {
    return refuse(explain(error));
  }
}

const staleText =
  'The form is of an earlier console. Here it is again, as you have filled it in, but for a password or URL: look at it, and send it once more';

const notRunText = (name: string): string =>
  `This console does not run ${name}: it was started with --read-only or --allow`;

const noPlanText = (name: string, outside: readonly string[]): string =>
  `${notRunText(name)}. So it makes no plan with ${outside.map(label => `“${label}”`).join(' and ')}, ` +
  'which would look at a file or connect to a server for you: “Show as command”, and give the ' +
  'command to somebody who runs it';

function findOperation({ offered, params: { topic, word, verb } }: PageRequest): Offered {
  const name = [topic, word, verb].filter(Boolean).join(' ');
  const found = offered.get(name);
  if (!found) throw new OperatorError(`There is no command ${name} in the console`);
  return found;
}

/**
 * An argument may make another command of its own: `databases` of a tenant `prune` is
 * `databases prune`.
 */
function otherCommand(
  { operation: { name, fields }, texts }: FilledForm,
  offered: Offer,
): FormError[] {
  const values = Object.keys(fields).flatMap(field =>
    fields[field]?.isArgument ? (texts[field] ?? []) : [],
  );
  const other = values
    .map(text => `${name} ${text}`)
    .find(each => offered.has(each) || withheld[each] !== undefined);
  return other === undefined
    ? []
    : [{ id: formId, text: `${other} is a command of its own: open its form` }];
}

/** The page of a run; for everybody but the visitor who has started it, without its result. */
export function runPage(request: PageRequest): ConsolePage {
  return runView(request, request.runs.find(request.params.id));
}

/** The result of a run, as text. */
export function runOutput(request: PageRequest): string {
  return runText(findOwn(request));
}

/** Starts the command whose plan was seen. */
export function performPlan(request: PageRequest): Answer {
  const plan = findOwn(request);
  const { name } = plan.form.operation;
  if (!request.offered.get(name)?.isAllowed) {
    return runView(request, plan, [{ id: 'run', text: notRunText(name) }]);
  }
  const typed = request.query('typed') ?? '';
  const confirm = plan.last.plan?.confirm;
  if (confirm && typed !== confirm.name) {
    return runView(request, plan, [{ id: 'typed', text: `Type ${confirm.name} to confirm` }]);
  }
  return { to: runPath(request.runs.perform(plan, typed)) };
}

/** Ends a run early. */
export function cancelRun(request: PageRequest): Answer {
  const run = findOwn(request);
  run.interrupt();
  return { to: runPath(run) };
}

const findOwn = ({ runs, params, visitor }: PageRequest): Run => runs.findOwn(params.id, visitor);
