/** Tells whoever waits how far the bench is; results go to stdout, this does not. */
export function progress(text: string): void {
  console.error(`${new Date().toISOString().slice(11, 19)} ${text}`);
}
