import type { ConfigAccess, ControlStatements, Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import type { Trace } from '../../lib/tracing/trace.ts';
import {
  type Context,
  changingFields,
  isRecorded,
  needsConfirmation,
  type Operation,
  type RecordBirth,
} from '../command/operation.ts';
import { type Fields, withDefaults } from '../command/operation-fields.ts';
import type { RecordedAction } from '../registry/record-action.ts';
import { catalogue } from './catalogue.ts';
import { exitUsage } from './command.ts';
import { explainLogin } from './explain-login.ts';
import { interruptSignal } from './interrupt-signal.ts';
import { type FrontEnd, printError, printWarning } from './output.ts';
import { readSecret } from './read-answer.ts';
import { watch } from './watch.ts';

// The modules that a command needs are imported when it runs: most of the time of a short
// command is the loading of modules.

const exitFailed = 1;

/** The operation and the values that a command line names. */
export interface Call {
  readonly operation: Operation;
  /** The values of the fields that it gives; of an optional secret, true. */
  readonly given: Readonly<Record<string, unknown>>;
  readonly dryRun: boolean;
  readonly yes: boolean;
  readonly watch: boolean;
  readonly reason: string | undefined;
}

/**
 * Runs an operation on the installation that the environment configures. An error is explained
 * in one line on stderr (as JSON with `--json`) and sets the exit code: 2 for wrong usage,
 * otherwise 1.
 */
export async function perform(call: Call, frontEnd: FrontEnd): Promise<void> {
  try {
    if ((await performInInstallation(call, frontEnd)) !== false) return;

    process.exitCode = exitFailed;
    if (call.operation.effect === 'reads' && !call.dryRun) frontEnd.found();
  } catch (error) {
    printError(await explainLogin(error));
    process.exitCode = error instanceof OperatorError && error.usage ? exitUsage : exitFailed;
  }
}

/** Opens the installation for an operation, if it uses one, and runs it. */
async function performInInstallation(call: Call, frontEnd: FrontEnd): Promise<unknown> {
  const { control, beginsData } = call.operation.handling;
  if (control === 'unused') return performOn(call, frontEnd, undefined);

  const needsData = call.dryRun || (control !== 'made' && !beginsData);
  const { openInstallation } = await import('../../control/installation.ts');
  const installation = await openInstallation(await readSettings(), 'command', { needsData });
  const work: Work = (resolved, recordBirth) =>
    performOn(resolved, frontEnd, installation, recordBirth);
  try {
    return await (control === 'made' ? makingControl : onControlHead)(installation, call, work);
  } finally {
    await installation.close();
  }
}

/**
 * The work of a command.
 * @param call with the present slugs of tenants in place of aliases
 * @param recordBirth absent: nothing is recorded
 */
type Work = (call: Call, recordBirth?: RecordBirth) => Promise<unknown>;

/** Runs the work of a command on a control database at head, as a process that beats. */
async function onControlHead(installation: Installation, call: Call, work: Work): Promise<unknown> {
  const { requireControlHead } = await import('../recovery/control-head.ts');
  const { beating } = await import('../command/beating.ts');
  const { effect, handling } = call.operation;

  await requireControlHead(installation, {
    isOperator: effect !== 'reads' && handling.control !== 'rows',
  });

  const { resolveSlugs } = await import('../registry/tenant-slugs.ts');
  const { fields } = call.operation;
  const given = await resolveSlugs(installation, fields, call.given, printWarning);

  return beating(installation, () => recorded(installation, { ...call, given }, work));
}

/**
 * Runs the work of a command that makes the control database, and records the change at its
 * end.
 */
async function makingControl(installation: Installation, call: Call, work: Work): Promise<unknown> {
  const running = work(call);
  await running.catch(() => {});
  // without a schema there is no table for it
  await recorded(installation, call, () => running).catch(() => {});

  return running;
}

async function readSettings() {
  const { readConfig, settingWarnings } = await import('../../lib/config/config.ts');
  for (const warning of settingWarnings()) printWarning(warning);
  return readConfig();
}

/** Runs the work of a command, and records it if it changes something, or a timer runs it. */
async function recorded(
  { statements }: ControlStatements,
  call: Call,
  work: Work,
): Promise<unknown> {
  const { operation, given, dryRun, reason } = call;
  const action = dryRun ? undefined : actionOf(operation, given, reason);
  if (!action) return work(call);
  const { recordAction } = await import('../registry/record-action.ts');
  return recordAction(statements, action, recordBirth => work(call, recordBirth));
}

/** Shows the plan of an operation, or has it confirmed where it hurts somebody, and runs it. */
async function performOn(
  call: Call,
  frontEnd: FrontEnd,
  installation: Installation | undefined,
  recordBirth: RecordBirth = async () => {},
): Promise<unknown> {
  const { operation, dryRun, yes } = call;
  const { progress, agree } = frontEnd;

  const { repeats } = operation.handling;
  const isRepeated = call.watch || repeats === 'always';
  const untraced: Context = {
    installation: installation as Installation, // an operation without one does not use it
    output: frontEnd.output(isRepeated),
    progress,
    // A repeated command ends with the turn in which a signal arrives: see `watch`.
    signal: isRepeated
      ? new AbortController().signal
      : interruptSignal(operation.handling, progress, installation),
    agree,
    recordBirth,
  };

  try {
    const values = withDefaults(operation.fields, await withSecrets(operation.fields, call.given));

    const isPlanned = dryRun || frontEnd.isPlanned || needsConfirmation(operation);
    if (operation.plan && (isPlanned || operation.handling.confirms?.(values))) {
      const plan = await operation.plan(values, untraced);
      if (dryRun) {
        frontEnd.showPlan(plan, untraced.output);
        return !plan.hasFailed;
      }

      progress.end();
      await frontEnd.confirm(plan, yes);
    }

    return await traced(operation, installation, async trace => {
      const run = () => operation.run(values, { ...untraced, trace }, catalogue);
      return isRepeated ? watch(run, repeats === 'always') : run();
    });
  } finally {
    progress.end();
  }
}

/** Reads the secrets from the terminal or stdin, as the last step before the operation. */
async function withSecrets(fields: Fields, given: Call['given']): Promise<Record<string, unknown>> {
  const values = { ...given };
  for (const [name, { kind, prompt = '', isRequired }] of Object.entries(fields)) {
    if (kind === 'secret' && (isRequired || given[name])) values[name] = await readSecret(prompt);
  }
  return values;
}

/**
 * Returns the entry of a command for the log of operators, without its secrets; undefined for a
 * command that changes nothing, which gets no entry.
 * @param given the fields that were given, without defaults
 */
function actionOf(
  operation: Operation,
  given: Readonly<Record<string, unknown>>,
  reason: string | undefined,
): RecordedAction | undefined {
  const { name, fields, effect, handling } = operation;
  const { isRoutine = false } = handling;
  const isChange =
    isRoutine ||
    effect !== 'reads' ||
    changingFields(operation).some(field => given[field] !== undefined);
  if (!isRecorded(operation) || !isChange) return undefined;

  const {
    slug,
    reason: _,
    ...rest
  } = Object.fromEntries(
    Object.entries(given).map(([field, value]) => [
      field,
      fields[field]?.kind === 'secret' ? true : value,
    ]),
  );

  const [only, ...more] = [slug].flat();
  const isOne = typeof only === 'string' && more.length === 0;

  return {
    command: name,
    slug: isOne ? only : null,
    arguments: isOne || more.length === 0 ? rest : { slugs: slug, ...rest },
    reason: reason ?? null,
    isRoutine,
  };
}

/**
 * Runs work in a span of its own, if the runs of the operation are traced and the settings name
 * a collector. Loads nothing of OpenTelemetry otherwise.
 */
async function traced<T>(
  { name, handling }: Operation,
  installation: ConfigAccess | undefined,
  work: (trace?: Trace) => Promise<T>,
): Promise<T> {
  if (!handling.isTraced) return work();
  const settings = installation?.config.tracing;
  if (!settings) return work();
  const { startTracing } = await import('../../lib/tracing/start-tracing.ts');
  const tracing = await startTracing(settings, printWarning);
  const trace = tracing?.begin();
  return (trace ? trace.step(name, {}, work) : work()).finally(() => tracing?.stop());
}
