import { showsProgress } from './output.ts';

const frames = '⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏';
const frameMs = 100;
/** Shorter work shows no spinner. */
const delayMs = 1_000;

/**
 * Waits for `work`. After 1 s, shows a spinner, `text` and the elapsed time on stderr, on a terminal without `--json`.
 * Clears the line at the end.
 */
export async function withSpinner<T>(text: string, work: Promise<T>): Promise<T> {
  if (!showsProgress()) return work;
  const startedAt = performance.now();
  let drawn = 0;
  const timer = setInterval(() => {
    const elapsed = performance.now() - startedAt;
    if (elapsed < delayMs) return;
    const line = `${frames[drawn++ % frames.length]} ${text} · ${Math.floor(elapsed / 1_000)} s`;
    process.stderr.write(`\r\x1b[K${line.slice(0, (process.stderr.columns || 80) - 1)}`);
  }, frameMs);
  try {
    return await work;
  } finally {
    clearInterval(timer);
    if (drawn > 0) process.stderr.write('\r\x1b[K');
  }
}
