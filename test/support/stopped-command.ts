import pg from 'pg';
import {
  buildOf,
  nodeOptions,
  type RunningScript,
  type ScriptResult,
  startProgram,
  startScript,
} from './command-line.ts';
import { eventually } from './eventually.ts';
import { seeProcesses } from './processes.ts';
import type { World } from './world.ts';

/** A command that waits in the control database, before it records that a database is complete, or the tenant's. */
export interface StoppedCommand {
  /** Kills its guard process, which would put the tenant back into service, and then the command, as kill -9 does. */
  kill(): Promise<void>;
  /** Kills the command alone. Its process, and not a program that has started it, gets the signal. */
  killAlone(): Promise<void>;
  goOn(): Promise<ScriptResult>;
}

/** The key of the advisory lock that a stopped command waits for. */
const key = 4711;
const script = 'scripts/tenant.ts';
const stop = `
  create function stop_command() returns trigger language plpgsql as $$
  begin
    perform pg_advisory_xact_lock_shared(${key});
    return new;
  end $$;
  create trigger stop_command before update of state on tenant_databases for each row
    when (old.state <> new.state and new.state in ('filled', 'kept', 'current')) execute function stop_command()`;

/**
 * Starts a command, and returns when it waits: a restore has filled its database then, and a move or swap is behind its
 * fence, before the exchange.
 * @param launcher a program with arguments that starts the command
 */
export async function stopCommand(
  { installation, environment }: Pick<World, 'installation' | 'environment'>,
  args: string[],
  { more = {}, launcher }: { more?: Record<string, string>; launcher?: readonly [string, ...string[]] } = {},
): Promise<StoppedCommand> {
  const holder = new pg.Client(installation.controlUrl);
  await holder.connect();
  const { rows: locks } = await holder.query<{ locked: boolean }>('select pg_try_advisory_lock($1) as locked', [key]);
  if (!locks[0]?.locked) throw new Error('another command is stopped');
  const { rows: made } = await holder.query(`select from pg_trigger where tgname = 'stop_command'`);
  if (made.length === 0) await holder.query(stop);
  const waiting = async (): Promise<number[]> => {
    const { rows } = await holder.query<{ pid: number }>(
      'select pid from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid))',
    );
    return rows.map(({ pid }) => pid);
  };
  const running = launch(args, { ...environment, ...more }, launcher);
  let hasEnded = false;
  void running.ended.finally(() => (hasEnded = true));
  await eventually(async () => hasEnded || (await waiting()).length > 0);
  if (hasEnded) throw new Error(`the command was to stop: ${JSON.stringify(await running.ended)}`);

  /** The server would notice only at its next statement that the command is gone. */
  const endSessions = async (): Promise<void> => {
    await running.ended;
    for (const pid of await waiting()) await holder.query('select pg_terminate_backend($1, 60000)', [pid]);
    await holder.end();
  };
  const pidOf = async (): Promise<number> => {
    const own = running.process.pid ?? 0;
    if (!launcher) return own;
    return (await seeProcesses()).find(({ parent, command }) => parent === own && command.includes(script))?.pid ?? own;
  };
  const killAlone = async (): Promise<void> => {
    process.kill(await pidOf(), 'SIGKILL');
    await endSessions();
  };
  return {
    killAlone,
    kill: async () => {
      const pid = await pidOf();
      for (const seen of await guardProcesses()) if (seen.parent === pid) process.kill(seen.pid, 'SIGKILL');
      await killAlone();
    },
    goOn: async () => {
      await holder.end();
      return running.ended;
    },
  };
}

/** Returns the processes that put tenants back into service when a command is killed. */
export async function guardProcesses() {
  return (await seeProcesses()).filter(({ command }) => command.includes('guard-process.ts'));
}

function launch(
  args: string[],
  environment: Record<string, string>,
  launcher: readonly [string, ...string[]] | undefined,
): RunningScript {
  if (!launcher) return startScript(script, args, environment);
  const [program, ...first] = launcher;
  return startProgram(
    program,
    [...first, process.execPath, ...nodeOptions(buildOf(script)), script, ...args],
    environment,
  );
}
