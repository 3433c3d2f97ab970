import { OperatorError } from '../../log/operator-error.ts';
import type { FilledForm } from './command-line.ts';
import { Run, type Start } from './console-run.ts';
import type { Visitor } from './entrance.ts';

const maxRunning = 8;
const maxKept = 100;
/** A plan older than this is made again. Its secret is forgotten then. */
const maxPlanMs = 15 * 60_000;

/** The runs of a console, which no closed page ends. */
export class Runs {
  readonly #runs = new Map<string, Run>();

  /** Starts a command. @throws {OperatorError} when too many commands run */
  start(form: FilledForm, visitor: Visitor, start: Start): Run {
    const started = this.list.find(run => run.submission === start.submission);
    if (started) return started;
    if (this.running.length >= maxRunning)
      throw new OperatorError(`${maxRunning} commands run already. Wait until one of them ends`);
    const run = new Run(form, visitor, start);
    this.#runs.set(run.id, run);
    setTimeout(() => (run.planned = undefined), maxPlanMs).unref();
    for (const { id, outcome } of this.#runs.values())
      if (this.#runs.size > maxKept && outcome !== undefined) this.#runs.delete(id);
    return run;
  }

  /** Starts what was planned. @throws {OperatorError} when the plan is too old, or too many commands run */
  perform(plan: Run, visitor: Visitor, typed: string): Run {
    const performed = this.list.find(run => run.submission === plan.id);
    if (performed) return performed;
    if (!plan.planned) throw new OperatorError('The plan is older than 15 minutes. Make it again');
    const confirmed = { typed, steady: plan.last.plan?.steady };
    const run = this.start(plan.planned, visitor, { isPlan: false, confirmed, submission: plan.id });
    plan.planned = undefined;
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
    return this.list.filter(({ outcome }) => outcome === undefined);
  }

  /** Ends the running commands as Ctrl-C does. @returns when all have ended */
  async stop(): Promise<void> {
    for (const run of this.running) run.interrupt();
    await Promise.all(this.running.map(({ ended }) => ended));
  }
}
