import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { environment } from '../../lib/config/process-environment.ts';
import { html } from '../../lib/html/html.ts';

/**
 * Opens the browser of the desktop, if there is one. The address stands in a file that only
 * this login can read, because the arguments of a program are visible to all.
 * @returns a function that removes the file
 */
export async function openBrowser(url: string): Promise<() => Promise<void>> {
  const { DISPLAY, WAYLAND_DISPLAY } = environment();
  const program =
    process.platform === 'darwin' ? 'open' : DISPLAY || WAYLAND_DISPLAY ? 'xdg-open' : undefined;
  if (program === undefined) return async () => {};

  const folder = await mkdtemp(join(tmpdir(), 'backoffice-console-'));
  const file = join(folder, 'console.html');
  const page = html`<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=${url}">`;
  await writeFile(file, page.html, { mode: 0o600 });
  const child = spawn(program, [file], { detached: true, stdio: 'ignore' });
  child.on('error', () => {}); // the address is printed
  child.unref();

  return () => rm(folder, { recursive: true, force: true });
}
