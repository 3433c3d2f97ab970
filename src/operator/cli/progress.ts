const redrawMs = 100;

/** A progress bar on the last line of a terminal, redrawn in place on stderr at most every 100 ms. */
export class Progress {
  readonly #startedAt = performance.now();
  #total = 0;
  #done = 0;
  #failed = 0;
  #drawnAt = 0;

  /** Draws the bar. With a total of 0 nothing is ever drawn. */
  start(total: number): void {
    this.#total = total;
    this.#draw();
  }

  advance(failed: boolean): void {
    this.#done++;
    if (failed) this.#failed++;
    if (performance.now() - this.#drawnAt > redrawMs || this.#done === this.#total) this.#draw();
  }

  /** Clears the line. */
  end(): void {
    if (this.#total > 0) process.stderr.write('\r\x1b[K');
  }

  #draw(): void {
    if (this.#total === 0) return;
    this.#drawnAt = performance.now();
    process.stderr.write(
      `\r\x1b[K${progressText(this.#done, this.#total, this.#failed, this.#drawnAt - this.#startedAt)}`,
    );
  }
}

/** `[████░░░░] 12/40 · 1 failed · 8.3/s · 4 s left` */
function progressText(done: number, total: number, failed: number, elapsedMs: number): string {
  const width = 20;
  const filled = Math.floor((done / total) * width);
  const rate = done / (elapsedMs / 1_000);
  return [
    `[${'█'.repeat(filled)}${'░'.repeat(width - filled)}] ${done}/${total}`,
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(done > 0 ? [`${rate.toFixed(1)}/s`, `${Math.ceil((total - done) / rate)} s left`] : []),
  ].join(' · ');
}
