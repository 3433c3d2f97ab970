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
}

/** The runs of a console, which no closed page ends. */
export class Runs {
  readonly #runs = new Map<string, Run>();
  /** The forms of plans that can be done, with their secrets, by the id of the plan. */
  readonly #planned = new Map<string, FilledForm>();

  /**
   * Starts a command, once: what is sent twice gives the same run.
   * @throws {OperatorError} when too many commands run
   */
  start(form: FilledForm, visitor: Visitor, { isPlan, confirmed, submission }: Start): Run {
    const started = submission === undefined ? undefined : this.list.find(run => run.submission === submission);
    if (started) return started;
    if (this.running.length >= maxRunning)
      throw new OperatorError(`${maxRunning} commands run already. Wait until one of them ends`);
    const id = randomUUID();
    const run: Run = {
      id,
      form: withoutSecret(form),
      isPlan,
      by: visitor.name,
      startedAt: new Date(),
      submission,
      command: new RunningCommand(argumentsOf(form, isPlan), { input: secretOf(form), name: visitor.name, confirmed }),
    };
    this.#runs.set(id, run);
    if (isPlan) this.#planned.set(id, form);
    setTimeout(() => this.#planned.delete(id), maxPlanMs).unref();
    for (const { id, command } of this.#runs.values())
      if (this.#runs.size > maxKept && command.outcome !== undefined) this.#runs.delete(id);
    return run;
  }

  /**
   * Starts what was planned, once: a form that is sent twice gives the same run.
   * @throws {OperatorError} when the plan is too old, or too many commands run
   */
  perform({ id, command }: Run, visitor: Visitor, typed: string): Run {
    const form = this.#planned.get(id);
    const performed = this.list.find(run => run.submission === id);
    if (!form && !performed) throw new OperatorError('The plan is older than 15 minutes. Make it again');
    const confirmed = { typed, steady: command.last.plan?.steady };
    const run = performed ?? this.start(form as FilledForm, visitor, { isPlan: false, confirmed, submission: id });
    this.#planned.delete(id);
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
