import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const projectFolder = fileURLToPath(new URL('../../..', import.meta.url));

/**
 * Returns the absolute path of a file that a setting names. A relative path begins in the
 * folder of the project, wherever a program is started: the service and all commands mean the
 * same file.
 */
export function projectPath(path: string): string {
  return resolve(projectFolder, path);
}
