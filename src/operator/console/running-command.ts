import { type ChildProcess, fork } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { fileURLToPath } from 'node:url';
import { environment } from '../../config/process-environment.ts';
import type { RunMessage } from '../command/run-message.ts';

/** A text or a list that a command has returned. Of a list, `total` counts also the rows that are not kept. */
export type Part =
  | Extract<RunMessage, { kind: 'text' }>
  | (Extract<RunMessage, { kind: 'list' }> & { readonly total: number });

const program = fileURLToPath(new URL('../../../scripts/backoffice.ts', import.meta.url));
const maxParts = 2_000;
const maxListRows = 2_000;
const maxNotes = 20_000;

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
  /** Parts that were removed, because the command returned too many. */
  omitted = 0;
  step: string | undefined;
  count: { total: number; done: number; failed: number } | undefined;
  plan: Extract<RunMessage, { kind: 'plan' }> | undefined;
  /** The end of the warnings and errors. */
  notes = '';
  /** Characters that were removed in front of them. */
  omittedNotes = 0;
  /** Undefined while it runs. `found`: it has done its work, and found something to correct. */
  outcome: 'done' | 'found' | 'failed' | undefined;
  endedAt: Date | undefined;
  /** True after `interrupt`. */
  isInterrupted = false;
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;
  #hasFound = false;

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
      const notes = `${this.notes}${text}`;
      this.notes = notes.slice(-maxNotes);
      this.omittedNotes += notes.length - this.notes.length;
      this.emit('change');
    });
    this.#child.on('message', (message: RunMessage) => this.#take(message, confirmed));
    this.ended = new Promise(resolve => {
      const end = (code: number | null): void => {
        this.outcome ??= code === 0 ? 'done' : code === 1 && this.#hasFound ? 'found' : 'failed';
        this.endedAt ??= new Date();
        this.emit('change');
        resolve();
      };
      this.#child.once('error', error => {
        this.notes += `${error.message}\n`;
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
    switch (message.kind) {
      case 'step':
        this.step = message.text;
        break;
      case 'count':
        this.count = message;
        break;
      case 'plan':
        this.plan = message;
        break;
      case 'confirm':
        this.#child.send(message.steady === confirmed?.steady ? confirmed.typed : false, () => {});
        break;
      case 'list':
        this.#add({ ...message, rows: message.rows.slice(0, maxListRows), total: message.rows.length });
        break;
      case 'text':
        this.#add(message);
        break;
      case 'found':
        this.#hasFound = true;
    }
    this.emit('change');
  }

  #add(part: Part): void {
    if (this.parts.length >= maxParts) this.omitted += this.parts.splice(0, 1).length;
    this.parts.push(part);
  }
}
