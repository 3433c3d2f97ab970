import { PassThrough } from 'node:stream';
import type { Router } from '@koa/router';
import type { Context } from 'koa';
import { sendPage } from './console-page.ts';
import type { ConsoleServices } from './console-services.ts';
import type { FormTokens } from './form-tokens.ts';
import type { FormError } from './form-values.ts';
import { othersView, type RunPage, runFragment, runText, runView, statusText } from './run-view.ts';
import type { Run } from './runs.ts';

/** How often, in ms, events bring what is new; and how often they prove that the connection is alive. */
const eventIntervalMs = 300;
const aliveIntervalMs = 15_000;

/** Adds the page of each run, its events, and its end. */
export function addRunRoutes(router: Router, { runs, offered }: ConsoleServices, tokens: FormTokens): void {
  router.get('/runs/:id', ctx => {
    const run = runs.find(String(ctx.params.id));
    if (run.by === ctx.state.visitor.name) return sendRun(ctx, run, []);
    sendPage(ctx, { title: run.form.operation.name, main: othersView(run) });
  });

  router.get('/runs/:id/output', ctx => {
    ctx.type = 'text/plain; charset=utf-8';
    ctx.body = runText(find(ctx));
  });

  router.post('/runs/:id/perform', async ctx => {
    const run = find(ctx);
    const typed = (await tokens.readSubmission(ctx)).get('typed')?.trim() ?? '';
    const confirm = run.command.last.plan?.confirm;
    if (confirm && typed !== confirm.name)
      return sendRun(ctx, run, [{ id: 'typed', text: `Type ${confirm.name} to confirm` }]);
    goToRun(ctx, runs.perform(run, ctx.state.visitor, typed));
  });

  router.post('/runs/:id/cancel', async ctx => {
    const run = find(ctx);
    await tokens.readSubmission(ctx);
    run.command.interrupt();
    goToRun(ctx, run);
  });

  router.get('/runs/:id/events', ctx => {
    const run = find(ctx);
    ctx.type = 'text/event-stream';
    ctx.set('X-Accel-Buffering', 'no');
    ctx.body = events(run, () => pageOf(ctx, run, []));
  });

  function find(ctx: Context): Run {
    return runs.findOwn(ctx.params.id, ctx.state.visitor);
  }

  function pageOf(ctx: Context, run: Run, errors: readonly FormError[]): RunPage {
    return { run, errors, offered, tokenOf: path => tokens.make(ctx, path) };
  }

  function sendRun(ctx: Context, run: Run, errors: readonly FormError[]): void {
    const isRunning = run.command.outcome === undefined;
    // Another address each time: a browser that is at this one already would only go to the fragment.
    const refresh = isRunning ? { seconds: 10, to: `/runs/${run.id}?at=${Date.now()}#run` } : undefined;
    const title = `${run.isPlan ? 'Plan of ' : ''}${run.form.operation.name}`;
    sendPage(ctx, { title, main: runView(pageOf(ctx, run, errors)), refresh }, errors.length > 0 ? 422 : 200);
  }
}

/** Lets the browser ask for the page of a run. */
export function goToRun(ctx: Context, { id }: Run): void {
  ctx.status = 303;
  ctx.redirect(`/runs/${id}`);
}

/** Sends the changing part of a page, now and after each change, until the run has ended. */
function events({ command }: Run, page: () => RunPage): PassThrough {
  const stream = new PassThrough();
  let timer: NodeJS.Timeout | undefined;
  const send = (): void => {
    timer = undefined;
    const data = {
      status: statusText(page().run),
      html: runFragment(page()).html,
      isEnded: command.outcome !== undefined,
    };
    stream.write(`event: run\ndata: ${JSON.stringify(data)}\n\n`);
    if (data.isEnded) stream.end();
  };
  const onChange = (): void => {
    // A client that does not read gets the newest state when it reads again.
    if (!stream.writableNeedDrain) timer ??= setTimeout(send, eventIntervalMs);
  };
  const alive = setInterval(() => stream.write(': alive\n\n'), aliveIntervalMs).unref();
  stream.on('drain', onChange);
  stream.once('close', () => {
    clearInterval(alive);
    clearTimeout(timer);
    command.off('change', onChange);
  });
  command.on('change', onChange);
  send();
  return stream;
}
