import { randomUUID } from 'node:crypto';
import { OperatorError } from '../../log/operator-error.ts';
import { argumentsOf, type FilledForm, secretOf, withoutSecret } from './command-line.ts';
import type { Visitor } from './entrance.ts';
import { type Confirmed, RunningCommand } from './running-command.ts';

const maxRunning = 8;
const maxKept = 100;
/** A plan older than this is made again. Its secret is forgotten then. */
const maxPlanMs = 15 * 60_000;

/** How a command is started. */
interface Start {
  readonly isPlan: boolean;
  readonly confirmed?: Confirmed;
  /** What its form has sent (`submissionOf`). */
  readonly submission?: string | undefined;
}

/** One command that the console runs or has run: a plan, or the operation itself. */
export interface Run {
  readonly id: string;
  /** Without its secret. */
  readonly form: FilledForm;
  readonly isPlan: boolean;
  readonly by: string | undefined;
  readonly startedAt: Date;
  readonly submission: string | undefined;
  readonly command: RunningCommand;
  /**
   * Starts what was planned, once: a form that is sent twice gives the same run.
   * @throws {OperatorError} when the plan is too old, or too many commands run
   */
  perform(visitor: Visitor, typed: string): Run;
}

/** The runs of a console, which no closed page ends. */
export class Runs {
  readonly #runs = new Map<string, Run>();

  /**
   * Starts a command, once: what is sent twice gives the same run.
   * @throws {OperatorError} when too many commands run
   */
  start(form: FilledForm, visitor: Visitor, { isPlan, confirmed, submission }: Start): Run {
    const started = submission === undefined ? undefined : this.list.find(run => run.submission === submission);
    if (started) return started;
    if (this.running.length >= maxRunning)
      throw new OperatorError(`${maxRunning} commands run already. Wait until one of them ends`);
    const input = secretOf(form);
    let performed: Run | undefined;
    let planned: FilledForm | undefined = isPlan ? form : undefined;
    setTimeout(() => {
      planned = undefined;
    }, maxPlanMs).unref();
    const run: Run = {
      id: randomUUID(),
      form: withoutSecret(form),
      isPlan,
      by: visitor.name,
      startedAt: new Date(),
      submission,
      command: new RunningCommand(argumentsOf(form, isPlan), { input, name: visitor.name, confirmed }),
      perform: (by, typed) => {
        if (performed) return performed;
        if (!planned) throw new OperatorError('The plan is older than 15 minutes. Make it again');
        performed = this.start(planned, by, { isPlan: false, confirmed: { typed, steady: run.command.plan?.steady } });
        planned = undefined;
        return performed;
      },
    };
    this.#runs.set(run.id, run);
    for (const { id, command } of this.#runs.values())
      if (this.#runs.size > maxKept && command.outcome !== undefined) this.#runs.delete(id);
    return run;
  }

  /** @throws {OperatorError} when there is none */
  find(id: string): Run {
    const run = this.#runs.get(id);
    if (!run) throw new OperatorError('There is no such run in this console. The log has what it changed');
    return run;
  }

  /**
   * Returns a run to the visitor who has started it: its result may have a secret, such as a new password.
   * @throws {OperatorError} when there is none, or it is of another visitor
   */
  findOwn(id: string, { name }: Visitor): Run {
    const run = this.find(id);
    if (run.by !== name)
      throw new OperatorError(`This run is of ${run.by}, who alone sees its result. The log has what it changed`);
    return run;
  }

  /** All, the newest first. */
  get list(): readonly Run[] {
    return [...this.#runs.values()].reverse();
  }

  get running(): readonly Run[] {
    return this.list.filter(({ command }) => command.outcome === undefined);
  }

  /** Ends the running commands as Ctrl-C does. @returns when all have ended */
  async stop(): Promise<void> {
    for (const { command } of this.running) command.interrupt();
    await Promise.all(this.running.map(({ command }) => command.ended));
  }
}
