import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { expect } from 'chai';
import { type RunningScript, startNpm } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import {
  endProcesses,
  type SeenProcess,
  seeProcesses,
  signalProcess,
} from '../support/processes.ts';

/**
 * A test that starts a service with a PostgreSQL of its own, beside the PostgreSQL of the run.
 */
const title = 'a start on an empty folder prints address';
const isMocha = ({ command }: SeenProcess): boolean => /\bnode \S*\/mocha\b/.test(command);
const isPostgres = ({ program, command }: SeenProcess): boolean =>
  /\/postgres$/.test(program) && / -D /.test(command);
const isService = ({ command }: SeenProcess): boolean => command.endsWith(' src/main.ts');
const isRedis = ({ program }: SeenProcess): boolean => /\/redis-(server|check-rdb)$/.test(program);

describe('drill: signals to npm test', () => {
  const runs: RunningScript[] = [];
  let seen: SeenProcess[] = [];

  after(() => endProcesses(({ pid }) => seen.some(each => each.pid === pid)));

  /**
   * Starts `npm test`, and waits until every kind of process runs that it starts. Returns all
   * of them.
   */
  async function startTests(): Promise<SeenProcess[]> {
    const npm = startNpm(['test', '--', '--grep', `${title}|Redis`], {});
    runs.push(npm);
    return eventually(async () => {
      seen = descendants(npm.process.pid ?? 0, await seeProcesses());
      expect(npm.process.exitCode, npm.output.stdout).to.equal(null);
      const kinds = [isMocha, isService, isRedis].every(isKind => seen.some(isKind));
      return kinds && seen.filter(isPostgres).length >= 2 && seen;
    }, 250_000);
  }

  for (const [what, signal] of [
    ['SIGTERM to npm test', npm => process.kill(npm, 'SIGTERM')],
    ['SIGINT to npm test', npm => process.kill(npm, 'SIGINT')],
    ['Ctrl-C under npm test', npm => process.kill(-npm, 'SIGINT')],
    [
      'SIGKILL to its mocha',
      (_, processes) => signalProcess(processes.find(isMocha)?.pid, 'SIGKILL'),
    ],
  ] satisfies [string, (npm: number, processes: SeenProcess[]) => void][]) {
    it(`${what} leaves no service, no PostgreSQL, no Redis and no folder of data`, async () => {
      const processes = await startTests();
      const folders = processes
        .filter(isPostgres)
        .map(({ workingFolder }) => dirname(workingFolder));

      signal(runs.at(-1)?.process.pid ?? 0, processes);

      const left = async (): Promise<string[]> => [
        ...(await seeProcesses())
          .filter(({ pid }) => processes.some(each => each.pid === pid))
          .map(each => each.command),
        ...folders.filter(folder => existsSync(folder)),
      ];
      await eventually(async () => expect(await left()).to.deep.equal([]) && true);
    });
  }
});

/**
 * Returns a process and all that it has started, directly or not, unless a process between them
 * has ended.
 */
function descendants(root: number, processes: SeenProcess[]): SeenProcess[] {
  const found = processes.filter(({ pid }) => pid === root);
  for (const { pid } of found) found.push(...processes.filter(({ parent }) => parent === pid));
  return found;
}
