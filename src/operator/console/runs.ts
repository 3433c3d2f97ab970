import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { environment } from '../../lib/config/process-environment.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import type { RunMessage } from '../command/run-message.ts';
import { argumentsOf, type FilledForm, secretOf, withoutSecret } from './command-line.ts';
import type { Visitor } from './entrance.ts';

/** A text or a list that a command has returned. */
export type Part = Extract<RunMessage, { kind: 'text' | 'list' }>;

const program = fileURLToPath(new URL('../../../scripts/backoffice.ts', import.meta.url));
/** The characters of a text that are kept: of a longer text, the end. */
const maxLength = 1_000_000;
/** A plan older than this is made again. Its secret is forgotten then. */
const maxPlanMs = 15 * 60_000;

/** Returns a text with further text, within `maxLength`. */
function append(before: string, more: string): string {
  const text = before + more;
  return text.length > maxLength ? `…${text.slice(-maxLength)}` : text;
}

/** The start of a command. */
interface Start {
  /** The name of the visitor who starts it. */
  readonly by: string | undefined;
  readonly isPlan: boolean;
  /** Identifies the form that started the run: a form that is sent twice gives the same run. */
  readonly submission: string;
  /** The name typed to confirm the command, and the plan that must still hold. */
  readonly confirmed?: { readonly typed: string; readonly steady: string | undefined };
}

/**
 * A command of the command line, or its plan, in a process of its own, with the messages that
 * it has returned up to now. It is the same program with the same arguments, so whatever holds
 * for a command holds here, its end by a signal included.
 */
export class Run {
  readonly id = randomUUID();
  readonly startedAt = new Date();
  readonly start: Start;
  /** The form without its secret. */
  readonly form: FilledForm;
  /** The form with its secret, of a plan that can be done. */
  planned: FilledForm | undefined;
  readonly parts: Part[] = [];
  /** The last message of each kind. */
  last: { readonly [Kind in RunMessage['kind']]?: Extract<RunMessage, { kind: Kind }> } = {};
  /** The warnings and errors. */
  notes = '';
  /**
   * The outcome; undefined while the command runs. `found`: it has done its work, and found a
   * fault to correct.
   */
  outcome: 'done' | 'found' | 'failed' | undefined;
  endedAt: Date | undefined;
  /** True after `interrupt`. */
  isInterrupted = false;
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;

  constructor(form: FilledForm, start: Start) {
    const { by, isPlan } = start;
    this.start = start;
    this.form = withoutSecret(form);
    this.planned = isPlan ? form : undefined;

    const { COLUMNS: _, ...variables } = environment();
    const verb = start.confirmed === undefined ? '__run' : '__perform';
    this.#child = fork(program, [verb, ...argumentsOf(form, isPlan)], {
      stdio: ['pipe', 'ignore', 'pipe', 'ipc'],
      // The command has a session of its own: a signal of the terminal is for the console,
      // which passes it on once.
      detached: true,
      env: { ...variables, ...(by !== undefined && { OPERATOR_NAME: by }) },
    });

    const { stdin, stderr } = this.#child;
    stdin?.on('error', () => {}); // EPIPE: it has ended without reading it
    stdin?.end(secretOf(form) ?? '');
    stderr?.setEncoding('utf8').on('data', text => (this.notes = append(this.notes, text)));
    this.#child.on('message', (message: RunMessage) => this.#take(message));

    this.ended = new Promise(resolve => {
      const end = (code: number | null): void => {
        this.outcome ??= code === 0 ? 'done' : code === 1 && this.last.found ? 'found' : 'failed';
        this.endedAt ??= new Date();
        resolve();
      };
      this.#child.once('close', end).once('error', ({ message }) => {
        this.notes += message;
        end(1);
      });
    });
  }

  /**
   * Ends the command as one Ctrl-C does, however often this is called: a second Ctrl-C would
   * end the command in the middle.
   */
  interrupt(): void {
    if (this.isInterrupted) return;
    this.isInterrupted = true;
    this.#child.kill('SIGINT');
  }

  #take(message: RunMessage): void {
    const { confirmed } = this.start;
    const before = this.parts.at(-1);
    if (message.kind === 'confirm') {
      this.#child.send(message.steady === confirmed?.steady ? confirmed.typed : false, () => {});
    } else if (message.kind === 'text' && before?.kind === 'text') {
      this.parts[this.parts.length - 1] = {
        ...before,
        text: append(before.text, `\n${message.text}`),
      };
    } else if (message.kind === 'text' || message.kind === 'list') {
      this.parts.push(message);
    } else {
      this.last = { ...this.last, [message.kind]: message };
    }
  }
}

const maxRunning = 8;
const maxKept = 100;

/** The runs of a console, which no closed page ends. */
export class Runs {
  readonly #runs = new Map<string, Run>();

  /**
   * Starts a command.
   * @throws {OperatorError} when too many commands run
   */
  start(form: FilledForm, start: Start): Run {
    const started = this.#startedBy(start.submission);
    if (started) return started;
    if (this.running.length >= maxRunning) {
      throw new OperatorError(`${maxRunning} commands run already. Wait until one of them ends`);
    }

    const run = new Run(form, start);
    this.#runs.set(run.id, run);
    setTimeout(() => (run.planned = undefined), maxPlanMs).unref();

    for (const { id, outcome } of this.#runs.values()) {
      if (this.#runs.size > maxKept && outcome !== undefined) this.#runs.delete(id);
    }

    return run;
  }

  /**
   * Starts what was planned.
   * @throws {OperatorError} when the plan is too old, or too many commands run
   */
  perform(plan: Run, typed: string): Run {
    const performed = this.#startedBy(plan.id);
    if (performed) return performed;
    if (!plan.planned) throw new OperatorError('The plan is older than 15 minutes. Make it again');

    const confirmed = { typed, steady: plan.last.plan?.steady };
    const run = this.start(plan.planned, {
      by: plan.start.by,
      isPlan: false,
      confirmed,
      submission: plan.id,
    });

    plan.planned = undefined;
    return run;
  }

  #startedBy(submission: string): Run | undefined {
    return this.list.find(({ start }) => start.submission === submission);
  }

  /** @throws {OperatorError} when there is none */
  find(id = ''): Run {
    const run = this.#runs.get(id);
    if (!run) {
      throw new OperatorError('There is no such run in this console. The log has what it changed');
    }
    return run;
  }

  /**
   * Returns a run to the visitor who has started it: its result may have a secret, such as a
   * new password.
   * @throws {OperatorError} when there is none, or it is of another visitor
   */
  findOwn(id: string | undefined, { name }: Visitor): Run {
    const run = this.find(id);
    const { by } = run.start;
    if (by !== name) {
      throw new OperatorError(
        `This run is of ${by}, who alone sees its result. The log has what it changed`,
      );
    }
    return run;
  }

  /** All, the newest first. */
  get list(): readonly Run[] {
    return [...this.#runs.values()].reverse();
  }

  get running(): readonly Run[] {
    return this.list.filter(({ outcome }) => outcome === undefined);
  }

  /**
   * Ends the running commands as Ctrl-C does.
   * @returns when all have ended
   */
  async stop(): Promise<void> {
    for (const run of this.running) run.interrupt();
    await Promise.all(this.running.map(({ ended }) => ended));
  }
}
