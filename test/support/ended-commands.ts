import { join } from 'node:path';
import { expect } from 'chai';
import { backupSettings } from './backup-settings.ts';
import { type ScriptResult, startScript } from './command-line.ts';
import { type EndingProxy, startEndingProxy } from './ending-proxy.ts';
import { eventually } from './eventually.ts';
import { makeServerFolder, removeServerFolder } from './server-folder.ts';
import { guardProcesses } from './stopped-command.ts';
import { postgresUrl } from './test-server.ts';
import { TwoServers } from './two-servers.ts';
import { sql, type World } from './world.ts';

/** Commands that copy databases; each run has a number of its own. */
const commands = {
  clone: run => ['clone', 'acme', `copy-${run}`],
  'clone of an archive': run => ['clone', 'acme', `copy-${run}`, '--archive', 'latest'],
  restore: () => ['restore', 'acme', '--archive', 'latest'],
  move: (_, { to }) => ['move', 'globex', '--to', to, '--pause', '60'],
  'backup run': () => ['backup', 'run', 'acme'],
  'backup drill': () => ['backup', 'drill', '--count', '1'],
  export: (run, { folder }) => ['export', 'acme', '--to', join(folder, `export-${run}.tar`)],
  provision: run => ['provision', `new-${run}`, '--name', 'New', '--admin-email', 'a@new.test'],
} as const satisfies Record<
  string,
  (run: number, place: { folder: string; to: string }) => string[]
>;

export type CopyingCommand = keyof typeof commands;
export const copyingCommands = Object.keys(commands) as CopyingCommand[];

/** A command that has ended, and the packets that its server has got and sent. */
interface EndedCommand extends ScriptResult {
  readonly packets: number;
}

/** A command that goes on for longer hangs. */
const maxMs = 120_000;

/** Runs commands that copy, and ends the sessions of their server in the middle of them. */
export class EndedCommands {
  readonly #servers: TwoServers;
  readonly #proxy: EndingProxy;
  readonly #folder: string;
  #run = 0;

  private constructor(servers: TwoServers, proxy: EndingProxy, folder: string) {
    this.#servers = servers;
    this.#proxy = proxy;
    this.#folder = folder;
  }

  static async start(): Promise<EndedCommands> {
    const folder = await makeServerFolder('ended');
    const servers = await TwoServers.start(await backupSettings(folder));
    for (const tenant of [servers.world.acme, servers.world.globex]) {
      await sql(
        tenant,
        `create table notes as
         select n as id, md5(n::text) || md5((n + 1)::text) as note from generate_series(1, 40000) n`,
      );
    }
    await servers.runWell(['backup', 'init']);
    await servers.runWell(['backup', 'run', '--all']);

    return new EndedCommands(servers, await startEndingProxy(postgresUrl()), folder);
  }

  async close(): Promise<void> {
    await this.#proxy.close();
    await this.#servers.close();
    await removeServerFolder(this.#folder);
  }

  /** Runs a command that must succeed. */
  async runWell(name: CopyingCommand): Promise<EndedCommand> {
    const ended = await this.run(name, Number.POSITIVE_INFINITY, false);
    expect(ended.code, `${name}: ${ended.stdout}${ended.stderr}`).to.equal(0);

    return ended;
  }

  /**
   * Runs a command.
   * @param packets after which all of its sessions are ended
   * @param refusing true: the server accepts no session after that
   * @param atGuard true: the sessions are ended while its guard process starts, too
   */
  async run(
    name: CopyingCommand,
    packets: number,
    refusing: boolean,
    atGuard = false,
  ): Promise<EndedCommand> {
    const { world } = this.#servers;
    const run = ++this.#run;
    const to = await this.#servers.otherServer('globex');
    await change(world, run);
    await this.#proxy.endAfter(packets, refusing);

    const args = commands[name](run, { folder: this.#folder, to });
    const running = startScript('scripts/tenant.ts', args, {
      ...world.environment,
      DATABASE_URL: this.#proxy.through(world.installation.controlUrl),
      ...(atGuard && { NODE_OPTIONS: `--import ${import.meta.resolve('./slow-guard.ts')}` }),
    });
    running.process.stdin.end();
    if (atGuard) {
      await eventually(() => hasGuard(running.process.pid));
      this.#proxy.end();
    }
    const timer = setTimeout(() => running.process.kill('SIGKILL'), maxMs);
    const ended = await running.ended;
    clearTimeout(timer);

    return { ...ended, packets: this.#proxy.passed };
  }
}

const hasGuard = async (pid: number | undefined): Promise<boolean> =>
  (await guardProcesses()).some(({ parent }) => parent === pid);

/** Lets the next run archive the tenant. */
async function change({ acme }: World, run: number): Promise<void> {
  await sql(acme, `insert into currencies (code, name) values ('C${run}', 'Currency')`);
}

/**
 * Returns what is wrong with the end of a command; undefined: it has succeeded, or has ended
 * with a sentence and a documented code.
 */
export function faultOfEnd({ code, signal, stdout, stderr }: ScriptResult): string | undefined {
  const text = `${stdout}${stderr}`.trim();
  const isSentence = /[.!?]$| -c 'select 1'$|: bin\/backoffice [^\n]+$/.test(text);
  const isForeign = /^ +at |Warning:|Unexpected error/m.test(text);
  const isWell = !isForeign && (code === 0 || (code === 1 && isSentence));

  return isWell ? undefined : `${code ?? signal}: ${text.slice(-500)}`;
}
