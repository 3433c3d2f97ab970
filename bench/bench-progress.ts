/** Prints a progress line to stderr; stdout is for results only. */
export function progress(text: string): void {
  console.error(`${new Date().toISOString().slice(11, 19)} ${text}`);
}
