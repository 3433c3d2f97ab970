import { showsProgress } from './output.ts';

const frames = '⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏';
const frameMs = 100;

/** Shows the current step of a long command and the elapsed time on stderr, on a terminal without `--json`. */
export class StepSpinner {
  readonly #startedAt = performance.now();
  #timer: NodeJS.Timeout | undefined;
  #text = '';
  #drawn = 0;

  /** Begins a step. */
  readonly step = (text: string): void => {
    this.#text = text;
    if (showsProgress()) this.#timer ??= setInterval(() => this.#draw(), frameMs);
  };

  /** Clears the line. */
  readonly end = (): void => {
    clearInterval(this.#timer);
    if (this.#drawn > 0) process.stderr.write('\r\x1b[K');
  };

  #draw(): void {
    const seconds = Math.floor((performance.now() - this.#startedAt) / 1_000);
    const line = `${frames[this.#drawn++ % frames.length]} ${this.#text} · ${seconds} s`;
    process.stderr.write(`\r\x1b[K${line.slice(0, (process.stderr.columns || 80) - 1)}`);
  }
}
