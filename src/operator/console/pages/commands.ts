import { createHash } from 'node:crypto';
import { type Html, html } from '../../../docs/html.ts';
import { explain, OperatorError } from '../../../log/operator-error.ts';
import { groups, isConfirmed, type Operation, takesReason } from '../../command/operation.ts';
import type { FilledForm } from '../command-line.ts';
import type { ConsolePage } from '../console-page.ts';
import type { Answer, ConsoleServices, PageRequest } from '../console-services.ts';
import { checkForm, type FormError, formId, readForm } from '../form-values.ts';
import { formPage } from '../form-view.ts';
import { operationLink } from '../links.ts';
import { type Offered, withheld } from '../offered.ts';
import { runPath } from '../run-view.ts';
import { table } from '../view.ts';

/** A run that ends within this time, in ms, is shown as ended. */
const quickMs = 800;

/** All operations, by group. */
export function commandsPage({ services: { offered } }: PageRequest): ConsolePage {
  const all = [...offered.values()];
  const groupTable = (group: Offered['group']): Html =>
    table(
      group,
      all.filter(each => each.group === group).map(({ operation }) => operation),
      '',
      [
        ['Command', ({ name }) => operationLink(name, name)],
        ['What it does', each => html`${each.description}${isConfirmed(each) ? effectMark(each) : ''}`],
      ],
    );
  const main = html`<p>Everything that the command line does. Each form shows its plan, runs, or becomes a command to copy.</p>
${groups.map(groupTable)}`;
  return { title: 'Commands', main };
}

const effectMark = ({ effect }: Operation) => html` <span class="tag state bad">${effect}</span>`;

/** The form of an operation, with what a link fills in. */
export function operationPage(request: PageRequest): Promise<ConsolePage> {
  const found = find(request);
  return formPage(request, found, readForm(found, request.given));
}

/** Starts the operation of a form, or its plan, or shows it as a command. */
export async function startOperation(request: PageRequest): Promise<Answer> {
  const { services, visitor, given } = request;
  const found = find(request);
  const { operation, isAllowed } = found;
  const form = readForm(found, given);
  const step = given.get('step');
  const asksWhy = services.needsReason && takesReason(operation) && step !== 'command';
  const errors = [...checkForm(form, asksWhy), ...otherCommand(form, services)];
  if (errors.length > 0 || step === 'command') return formPage(request, found, form, errors, step === 'command');
  const refuse = (text: string) => formPage(request, found, form, [{ id: formId, text }]);
  if (!isAllowed)
    return refuse(`This console does not run ${operation.name}: it was started with --read-only or --allow`);
  const isPlan = operation.plan !== undefined && (step !== 'run' || isConfirmed(operation));
  try {
    // Two clicks send the same; a page that is loaded again has another `form`.
    const submission = createHash('sha256').update(given.toString()).digest('base64url');
    const run = services.runs.start(form, visitor, { isPlan, submission });
    await Promise.race([run.ended, new Promise(resolve => setTimeout(resolve, quickMs).unref())]);
    return { to: runPath(run) };
  } catch (error) {
    return refuse(explain(error));
  }
}

function find({ services: { offered }, params: { topic, word } }: PageRequest): Offered {
  const name = [topic, word].filter(Boolean).join(' ');
  const found = offered.get(name);
  if (!found) throw new OperatorError(`There is no command ${name} in the console`);
  return found;
}

/** An argument may make another command of its own: `databases` of a tenant `prune` is `databases prune`. */
function otherCommand({ operation: { name, fields }, texts }: FilledForm, { offered }: ConsoleServices): FormError[] {
  const values = Object.keys(fields).flatMap(field => (fields[field]?.isArgument ? (texts[field] ?? []) : []));
  const other = values.map(text => `${name} ${text}`).find(each => offered.has(each) || withheld[each] !== undefined);
  return other === undefined ? [] : [{ id: formId, text: `${other} is a command of its own: open its form` }];
}
