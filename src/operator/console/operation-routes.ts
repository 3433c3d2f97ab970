import type { Router } from '@koa/router';
import type { Context } from 'koa';
import { permissions } from '../../control/permissions.ts';
import { html } from '../../docs/html.ts';
import { explain, OperatorError } from '../../log/operator-error.ts';
import { groups, isConfirmed, type Operation, takesReason } from '../command/operation.ts';
import { type Field, storedKindOf } from '../command/operation-fields.ts';
import { type Candidate, readStoredValues } from '../command/stored-values.ts';
import type { FilledForm } from './command-line.ts';
import { sendPage } from './console-page.ts';
import type { ConsoleServices } from './console-services.ts';
import { type FormTokens, submissionOf } from './form-tokens.ts';
import { checkForm, type FormError, formId, readForm } from './form-values.ts';
import { formView } from './form-view.ts';
import { operationLink, operationPath } from './links.ts';
import { type Offered, withheld } from './offered.ts';
import { goToRun } from './run-routes.ts';
import type { Run } from './runs.ts';
import { table } from './view.ts';

/** A run that ends within this time, in ms, is shown as ended. */
const quickMs = 800;

/** Adds the list of all operations, and the form of each. */
export function addOperationRoutes(router: Router, services: ConsoleServices, tokens: FormTokens): void {
  const { offered, runs, needsReason } = services;

  router.get('/operations', ctx => sendPage(ctx, { title: 'Commands', main: listView(offered) }));

  router.get('/operations/:topic{/:word}', async ctx => {
    const found = find(ctx);
    const form = readForm(found, new URLSearchParams(ctx.querystring));
    await sendForm(ctx, found, form, []);
  });

  router.post('/operations/:topic{/:word}', async ctx => {
    const found = find(ctx);
    const given = await tokens.readSubmission(ctx);
    const form = readForm(found, given);
    const step = given.get('step');
    const asksWhy = needsReason && takesReason(found.operation) && step !== 'command';
    const errors = [...checkForm(form, asksWhy), ...otherCommand(form, services)];
    if (errors.length > 0 || step === 'command') return sendForm(ctx, found, form, errors, step === 'command');
    const { operation, isAllowed } = found;
    const refuse = (text: string) => sendForm(ctx, found, form, [{ id: formId, text }]);
    if (!isAllowed)
      return refuse(`This console does not run ${operation.name}: it was started with --read-only or --allow`);
    const isPlan = operation.plan !== undefined && (step !== 'run' || isConfirmed(operation));
    let run: Run;
    try {
      run = runs.start(form, ctx.state.visitor, { isPlan, submission: submissionOf(given) });
    } catch (error) {
      return refuse(explain(error));
    }
    await Promise.race([run.command.ended, new Promise(resolve => setTimeout(resolve, quickMs).unref())]);
    goToRun(ctx, run);
  });

  function find(ctx: Context): Offered {
    const name = [ctx.params.topic, ctx.params.word].filter(Boolean).join(' ');
    const found = offered.get(name);
    if (!found) throw new OperatorError(`There is no command ${name} in the console`);
    return found;
  }

  async function sendForm(
    ctx: Context,
    found: Offered,
    form: FilledForm,
    errors: readonly FormError[],
    showsCommand = false,
  ) {
    const { name, fields } = found.operation;
    const slug = form.texts.slug?.[0];
    const candidates = new Map<string, readonly Candidate[]>();
    for (const [each, field] of Object.entries(fields)) candidates.set(each, await candidatesOf(field, slug));
    const token = tokens.make(ctx, operationPath(name));
    const main = formView({ offered: found, form, errors, token, needsReason, showsCommand, candidates });
    sendPage(ctx, { title: name, main }, errors.length > 0 ? 422 : 200);
  }

  async function candidatesOf(field: Field, slug: string | undefined): Promise<readonly Candidate[]> {
    if (field.kind === 'permission') return permissions.map(value => ({ value }));
    const kind = storedKindOf(field);
    return kind ? readStoredValues(services.control.statements, kind, '', slug) : [];
  }
}

function listView(offered: ConsoleServices['offered']) {
  const all = [...offered.values()];
  const sections = groups.map(group =>
    table(
      group,
      all.filter(each => each.group === group).map(({ operation }) => operation),
      '',
      [
        ['Command', ({ name }) => operationLink(name, name)],
        ['What it does', each => html`${each.description}${isConfirmed(each) ? effectMark(each) : ''}`],
      ],
    ),
  );
  return html`<h1>Commands</h1><p>Everything that the command line does. Each form shows its plan, runs, or becomes a command to copy.</p>${sections}`;
}

const effectMark = ({ effect }: Operation) => html` <span class="effect">${effect}</span>`;

/** An argument may make another command of its own: `databases` of a tenant `prune` is `databases prune`. */
function otherCommand({ operation: { name, fields }, texts }: FilledForm, { offered }: ConsoleServices): FormError[] {
  const values = Object.keys(fields).flatMap(field => (fields[field]?.isArgument ? (texts[field] ?? []) : []));
  const other = values.map(text => `${name} ${text}`).find(each => offered.has(each) || withheld[each] !== undefined);
  return other === undefined ? [] : [{ id: formId, text: `${other} is a command of its own: open its form` }];
}
