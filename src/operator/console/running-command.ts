import { type ChildProcess, fork } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { fileURLToPath } from 'node:url';
import { environment } from '../../config/process-environment.ts';
import type { RunMessage } from '../command/run-message.ts';

/** A text or a list that a command has returned, and how many characters in front, or rows at the end, are not kept. */
export type Part = Extract<RunMessage, { kind: 'text' | 'list' }> & { readonly lost: number };
export type Text = Extract<Part, { kind: 'text' }>;

const program = fileURLToPath(new URL('../../../scripts/backoffice.ts', import.meta.url));
const maxListRows = 2_000;
const maxLength = 1_000_000;

/** Returns a text with what follows it, or the end of both. */
function append({ text: before, lost }: Text, more: string): Text {
  const text = `${before}${more}`;
  return { kind: 'text', text: text.slice(-maxLength), lost: lost + Math.max(0, text.length - maxLength) };
}

/** What was typed to confirm a command, and what it must still plan to do. */
export interface Confirmed {
  readonly typed: string;
  readonly steady: string | undefined;
}

interface Start {
  /** What the command reads from stdin. */
  readonly input: string | undefined;
  /** Who runs it, for the log of operators. */
  readonly name: string | undefined;
  readonly confirmed: Confirmed | undefined;
}

/**
 * A command of the command line in a process of its own, with what it has returned up to now. It is the same program
 * with the same arguments, so whatever holds for a command holds here, its end by a signal included. Emits `change`.
 */
export class RunningCommand extends EventEmitter<{ change: [] }> {
  readonly parts: Part[] = [];
  /** The last message of each kind. */
  last: { readonly [Kind in RunMessage['kind']]?: Extract<RunMessage, { kind: Kind }> } = {};
  /** The warnings and errors. */
  notes: Text = { kind: 'text', text: '', lost: 0 };
  /** Undefined while it runs. `found`: it has done its work, and found something to correct. */
  outcome: 'done' | 'found' | 'failed' | undefined;
  endedAt: Date | undefined;
  /** True after `interrupt`. */
  isInterrupted = false;
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;

  constructor(args: readonly string[], { input, name, confirmed }: Start) {
    super();
    this.setMaxListeners(0);
    const { COLUMNS: _, OPERATOR_NAME, ...variables } = environment();
    const operator = name ?? OPERATOR_NAME;
    this.#child = fork(program, ['__run', ...args], {
      stdio: ['pipe', 'ignore', 'pipe', 'ipc'],
      detached: true, // in a session of its own: a signal of the terminal is for the console, which passes it on once
      env: { ...variables, ...(operator !== undefined && { OPERATOR_NAME: operator }) },
    });
    const { stdin, stderr } = this.#child;
    stdin?.on('error', () => {}); // EPIPE: it has ended without reading it
    stdin?.end(input ?? '');
    stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.notes = append(this.notes, text);
      this.emit('change');
    });
    this.#child.on('message', (message: RunMessage) => this.#take(message, confirmed));
    this.ended = new Promise(resolve => {
      const end = (code: number | null): void => {
        this.outcome ??= code === 0 ? 'done' : code === 1 && this.last.found ? 'found' : 'failed';
        this.endedAt ??= new Date();
        this.emit('change');
        resolve();
      };
      this.#child.once('error', error => {
        this.notes = append(this.notes, error.message);
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
    this.emit('change');
  }

  #take(message: RunMessage, confirmed: Confirmed | undefined): void {
    if (message.kind === 'confirm')
      this.#child.send(message.steady === confirmed?.steady ? confirmed.typed : false, () => {});
    else if (message.kind === 'list') {
      const rows = message.rows.slice(0, maxListRows);
      this.parts.push({ ...message, rows, lost: message.rows.length - rows.length });
    } else if (message.kind === 'text') {
      const last = this.parts.at(-1);
      if (last?.kind === 'text') this.parts[this.parts.length - 1] = append(last, `\n${message.text}`);
      else this.parts.push(append({ ...message, text: '', lost: 0 }, message.text));
    } else this.last = { ...this.last, [message.kind]: message };
    this.emit('change');
  }
}
