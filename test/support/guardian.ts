import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { endProcesses } from './processes.ts';
import { folderParents, isFolderOfRun } from './server-folder.ts';

/**
 * A process that outlives a test run, however the run ends (a signal to npm or to mocha,
 * SIGKILL, a crash): it waits for the end of its standard input, which only the run holds open.
 * Then it ends every process that the run has left, and removes its folders. After a run that
 * has cleaned up there is nothing to do.
 *
 * A process of the run has TEST_RUN in its environment. PostgreSQL has not, but works in a
 * folder of the run; initdb names it.
 */
const run = process.argv[2] ?? '';
for await (const _ of process.stdin);
await endProcesses(({ environment, program, workingFolder, command }) => {
  if (environment.includes(`TEST_RUN=${run}\0`)) return true;
  const words = [workingFolder, ...command.split(' ')].flatMap(word => word.split('/'));
  return /\/(postgres|initdb)$/.test(program) && words.some(word => isFolderOfRun(word, run));
});
for (const parent of folderParents) {
  const names = (await readdir(parent).catch(() => [])).filter(name => isFolderOfRun(name, run));
  await Promise.all(names.map(name => rm(join(parent, name), { recursive: true, force: true })));
}
