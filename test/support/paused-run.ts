import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { lockSpaces } from '../../src/lib/postgres/advisory-locks.ts';
import { type ScriptResult, startScript } from './command-line.ts';
import { eventually } from './eventually.ts';
import { controlSql, type World } from './world.ts';

/** A program that takes the steps of a run, and gets a signal before one of them. */
export const killedRestore = fileURLToPath(new URL('killed-restore.ts', import.meta.url));

/**
 * Stops a run before a step, and takes its locks from it.
 * @returns lets it go on until it ends
 */
export async function pauseRun(
  world: World,
  environment: Record<string, string>,
  [kind, slug, step]: readonly [kind: string, slug: string, step: string],
): Promise<() => Promise<ScriptResult>> {
  const script = startScript(killedRestore, [kind, slug, step, 'SIGSTOP'], environment);
  const holders = `select pid, classid from pg_locks where locktype = 'advisory' and granted
      and classid in (${lockSpaces.tenant}, ${lockSpaces.slug})
      and database = (select oid from pg_database where datname = current_database())`;
  await eventually(async () => {
    const status = await readFile(`/proc/${script.process.pid}/stat`, 'utf8').catch(() => '');
    return status.slice(status.lastIndexOf(')') + 2).startsWith('T');
  });
  await controlSql(world, `select pg_terminate_backend(pid) from (${holders}) as held`);
  await eventually(async () => (await controlSql(world, holders)).length === 0);
  return async () => {
    script.process.kill('SIGCONT');
    return script.ended;
  };
}
