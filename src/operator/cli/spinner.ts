const frames = '⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏';
const frameMs = 100;
/** What is done sooner needs no sign of life. */
const patienceMs = 1_000;

/** Shows on a terminal that `work` goes on, and for how long, once it has taken a second. Nothing of it stays. */
export async function during<T>(text: string, work: Promise<T>): Promise<T> {
  if (!process.stderr.isTTY) return work;
  const startedAt = performance.now();
  let drawn = 0;
  const timer = setInterval(() => {
    const elapsed = performance.now() - startedAt;
    if (elapsed < patienceMs) return;
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
