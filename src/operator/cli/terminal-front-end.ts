import { OperatorError } from '../../lib/log/operator-error.ts';
import { type CommandProgress, createOutput, type FrontEnd, wantsDocuments } from './output.ts';
import { canAsk, readAnswer } from './read-answer.ts';

/** Creates the front end of a terminal or of a script. */
export function createTerminalFrontEnd(): FrontEnd {
  const progress = new TerminalProgress();

  return {
    progress,
    isPlanned: false,
    output: isRepeated => createOutput(isRepeated, progress.clear),
    agree: async question => {
      progress.end();
      return canAsk() ? (await readAnswer(`${question}.\nType yes to go on`)) === 'yes' : undefined;
    },
    found: () => {}, // the exit code says that something was found
    confirm: async ({ confirm }, yes) => {
      if (!confirm || yes) return;
      const { name, consequence, kind = 'slug' } = confirm;

      if (!canAsk()) {
        throw new OperatorError(
          `${name} ${consequence}. Add --yes to confirm; nothing was changed`,
          { usage: true },
        );
      }

      const typed = await readAnswer(`${name} ${consequence}.\nType its ${kind} to confirm`);
      if (typed !== name) {
        throw new OperatorError(`That is not ${name}: nothing was changed`, { usage: true });
      }
    },
    showPlan: ({ document, text, isLines }, output) => {
      if (isLines && output.wantsDocuments && Array.isArray(document)) {
        for (const each of document) output.part(each, text);
      } else {
        output.result(document, text);
      }
    },
  };
}

const frames = '⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏';
const redrawMs = 100;
/** The time after which a step shows a spinner. */
const spinnerDelayMs = 1_000;

/**
 * Draws the progress of an operation on the last line of a terminal, on stderr: the current
 * step with the elapsed time, and then a bar as soon as it counts. Draws nothing in a script,
 * and where documents are printed.
 */
class TerminalProgress implements CommandProgress {
  readonly isVisible = process.stderr.isTTY === true && !wantsDocuments();
  readonly #startedAt = performance.now();
  #step = '';
  #spinner: NodeJS.Timeout | undefined;
  #total: number | undefined;
  #done = 0;
  #bad = 0;
  #badly = 'failed';
  #drawnAt = Number.NEGATIVE_INFINITY;
  #isDrawn = false;

  /** True once the progress counts. */
  get counts(): boolean {
    return this.#total !== undefined;
  }

  step(text: string): void {
    this.#step = text;
    if (this.isVisible) this.#spinner ??= setInterval(() => this.#drawStep(), redrawMs);
  }

  start(total: number, badly = 'failed'): void {
    this.end();
    this.#total = total;
    this.#badly = badly;
    this.#drawBar();
  }

  advance(isBad: boolean): void {
    this.#done++;
    if (isBad) this.#bad++;
    if (performance.now() - this.#drawnAt > redrawMs || this.#done === this.#total) this.#drawBar();
  }

  /** Clears the line; the next output draws the progress again. */
  readonly clear = (): void => {
    if (this.#isDrawn) process.stderr.write('\r\x1b[K');
    this.#isDrawn = false;
  };

  /** Clears the line, and draws no more of the current step. */
  end(): void {
    clearInterval(this.#spinner);
    this.#spinner = undefined;
    this.clear();
  }

  #drawStep(): void {
    const elapsedMs = performance.now() - this.#startedAt;
    if (elapsedMs < spinnerDelayMs) return;
    const frame = frames[Math.floor(elapsedMs / redrawMs) % frames.length];
    this.#draw(
      `${frame} ${this.#step} · ${Math.floor(elapsedMs / 1_000)} s`.slice(
        0,
        (process.stderr.columns || 80) - 1,
      ),
    );
  }

  #drawBar(): void {
    if (!this.#total || !this.isVisible) return;
    this.#drawnAt = performance.now();
    const bad = this.#bad > 0 ? `${this.#bad} ${this.#badly}` : undefined;
    this.#draw(barText(this.#done, this.#total, bad, this.#drawnAt - this.#startedAt));
  }

  #draw(text: string): void {
    process.stderr.write(`\r\x1b[K${text}`);
    this.#isDrawn = true;
  }
}

/** `[████░░░░] 12/40 · 1 failed · 8.3/s · 4 s left` */
function barText(done: number, total: number, bad: string | undefined, elapsedMs: number): string {
  const width = 20;
  const filled = Math.floor((done / total) * width);
  const rate = done / (elapsedMs / 1_000);
  return [
    `[${'█'.repeat(filled)}${'░'.repeat(width - filled)}] ${done}/${total}`,
    ...(bad === undefined ? [] : [bad]),
    ...(done > 0 ? [`${rate.toFixed(1)}/s`, `${Math.ceil((total - done) / rate)} s left`] : []),
  ].join(' · ');
}
