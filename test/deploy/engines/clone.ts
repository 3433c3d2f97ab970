import { cp } from 'node:fs/promises';
import { root } from '../../support/command-line.ts';

/** The files that a clone lacks, because they are made in it. */
const made = /^(node_modules|\.git|\.data|deploy\/secrets|(deploy\/)?\.env)(\/|$)/;

/** Copies into a folder what a clone of the repository has. */
export async function copyClone(folder: string): Promise<void> {
  await cp(root, folder, {
    recursive: true,
    filter: path => !made.test(path.slice(root.length)),
  });
}

/**
 * Returns the lines that give a shell a home of its own and a umask that hides new files from
 * others. Docker keeps the settings of the present home: its plugins, the proxy for builds, and
 * the logins of registries.
 */
export function ownHome(folder: string): string {
  return `umask 077\nexport DOCKER_CONFIG="\${DOCKER_CONFIG:-$HOME/.docker}" HOME=${folder}\n`;
}
