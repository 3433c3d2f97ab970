import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { environment } from '../../config/process-environment.ts';
import type { RunMessage } from '../command/run-message.ts';
import { argumentsOf, type FilledForm, secretOf, withoutSecret } from './command-line.ts';
import type { Visitor } from './entrance.ts';

/** A text or a list that a command has returned. */
export type Part = Extract<RunMessage, { kind: 'text' | 'list' }>;

const program = fileURLToPath(new URL('../../../scripts/backoffice.ts', import.meta.url));
/** Of a longer text, the end is kept. */
const maxLength = 1_000_000;

/** Returns a text with what follows it. */
function append(before: string, more: string): string {
  const text = before + more;
  return text.length > maxLength ? `…${text.slice(-maxLength)}` : text;
}

/** How a command is started. */
export interface Start {
  readonly isPlan: boolean;
  /** Identifies what started it: what is sent twice gives the same run. */
  readonly submission: string;
  /** What was typed to confirm it, and what it must still plan to do. */
  readonly confirmed?: { readonly typed: string; readonly steady: string | undefined };
}

/**
 * A command of the command line, or its plan, in a process of its own, with what it has returned up to now. It is the same
 * program with the same arguments, so whatever holds for a command holds here, its end by a signal included.
 */
export class Run {
  readonly id = randomUUID();
  readonly startedAt = new Date();
  readonly isPlan: boolean;
  readonly submission: string;
  /** Without its secret. */
  readonly form: FilledForm;
  /** The name of the visitor who has started it. */
  readonly by: string | undefined;
  /** Of a plan that can be done: the form with its secret. */
  planned: FilledForm | undefined;
  readonly parts: Part[] = [];
  /** The last message of each kind. */
  last: { readonly [Kind in RunMessage['kind']]?: Extract<RunMessage, { kind: Kind }> } = {};
  /** The warnings and errors. */
  notes = '';
  /** Undefined while it runs. `found`: it has done its work, and found something to correct. */
  outcome: 'done' | 'found' | 'failed' | undefined;
  endedAt: Date | undefined;
  /** True after `interrupt`. */
  isInterrupted = false;
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;

  constructor(form: FilledForm, { name }: Visitor, { isPlan, submission, confirmed }: Start) {
    this.isPlan = isPlan;
    this.submission = submission;
    this.form = withoutSecret(form);
    this.by = name;
    this.planned = isPlan ? form : undefined;
    const { COLUMNS: _, OPERATOR_NAME, ...variables } = environment();
    const operator = name ?? OPERATOR_NAME;
    this.#child = fork(program, ['__run', ...argumentsOf(form, isPlan)], {
      stdio: ['pipe', 'ignore', 'pipe', 'ipc'],
      detached: true, // in a session of its own: a signal of the terminal is for the console, which passes it on once
      env: { ...variables, ...(operator !== undefined && { OPERATOR_NAME: operator }) },
    });
    const { stdin, stderr } = this.#child;
    stdin?.on('error', () => {}); // EPIPE: it has ended without reading it
    stdin?.end(secretOf(form) ?? '');
    const note = (text: string): void => {
      this.notes = append(this.notes, text);
    };
    stderr?.setEncoding('utf8').on('data', note);
    this.#child.on('message', (message: RunMessage) => this.#take(message, confirmed));
    this.ended = new Promise(resolve => {
      const end = (code: number | null): void => {
        this.outcome ??= code === 0 ? 'done' : code === 1 && this.last.found ? 'found' : 'failed';
        this.endedAt ??= new Date();
        resolve();
      };
      this.#child.once('error', error => {
        note(error.message);
        end(1);
      });
      this.#child.once('close', end);
    });
  }

  /** Ends it as one Ctrl-C does, however often it is called: a second one would end it in the middle. */
  interrupt(): void {
    if (this.isInterrupted) return;
    this.isInterrupted = true;
    this.#child.kill('SIGINT');
  }

  #take(message: RunMessage, confirmed: Start['confirmed']): void {
    if (message.kind === 'confirm')
      this.#child.send(message.steady === confirmed?.steady ? confirmed.typed : false, () => {});
    else if (message.kind === 'list') this.parts.push(message);
    else if (message.kind === 'text') {
      const last = this.parts.at(-1);
      if (last?.kind === 'text') this.parts.pop();
      this.parts.push({
        kind: 'text',
        text: last?.kind === 'text' ? append(last.text, `\n${message.text}`) : message.text,
      });
    } else this.last = { ...this.last, [message.kind]: message };
  }
}
