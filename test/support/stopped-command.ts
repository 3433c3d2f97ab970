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
import { readLockWaiters } from './lock-waiters.ts';
import { seeProcesses, signalProcess } from './processes.ts';
import type { World } from './world.ts';

/** A command that waits in the control database. */
export interface StoppedCommand {
  /**
   * Kills its guard process, which would put the tenant back into service, and then the
   * command, as kill -9 does.
   */
  kill(): Promise<void>;
  /**
   * Kills the command alone. Its process, and not a program that has started it, gets the
   * signal.
   */
  killAlone(): Promise<void>;
  goOn(): Promise<ScriptResult>;
}

/**
 * The places at which a command waits: before it records that a database is complete, or the
 * tenant's; or before it lifts its fence. Each has the key of an advisory lock, which the
 * command waits for, and a trigger.
 */
const stops = {
  change: {
    key: 4711,
    on: `update of state on tenant_databases for each row
         when (old.state <> new.state and new.state in ('filled', 'kept', 'current'))`,
  },
  lift: { key: 4712, on: 'delete on tenant_fences for each row' },
} as const;
const script = 'scripts/tenant.ts';
const stopFunction = `
  create or replace function stop_command() returns trigger language plpgsql as $$
  begin
    perform pg_advisory_xact_lock_shared(tg_argv[0]::int);
    return case tg_op when 'DELETE' then old else new end;
  end $$`;

/**
 * Starts a command, and returns when it waits: a restore has filled its database then, and a
 * move or swap is behind its fence, before the exchange.
 * @param options `launcher`: a program with arguments that starts the command; `at`: where it
 *   waits, if not there
 */
export async function stopCommand(
  { installation, environment }: Pick<World, 'installation' | 'environment'>,
  args: string[],
  options: { launcher?: readonly [string, ...string[]]; at?: keyof typeof stops } = {},
): Promise<StoppedCommand> {
  const { launcher, at = 'change' } = options;
  const { key, on } = stops[at];
  const holder = new pg.Client(installation.controlUrl);
  holder.on('error', () => {}); // the server may end it first
  await holder.connect();
  const { rows: locks } = await holder.query<{ locked: boolean }>(
    'select pg_try_advisory_lock($1) as locked',
    [key],
  );
  if (!locks[0]?.locked) throw new Error('another command is stopped');
  await holder.query(stopFunction);
  await holder.query(
    `create or replace trigger stop_command before ${on} execute function stop_command(${key})`,
  );
  const running = launch(args, environment, launcher);
  let hasEnded = false;
  void running.ended.finally(() => (hasEnded = true));
  await eventually(async () => hasEnded || (await readLockWaiters(holder)).length > 0);
  if (hasEnded) {
    await holder.end();
    throw new Error(`the command was to stop: ${JSON.stringify(await running.ended)}`);
  }

  /** The server would notice only at its next statement that the command is gone. */
  const endSessions = async (): Promise<void> => {
    await running.ended;
    for (const pid of await readLockWaiters(holder)) {
      await holder.query('select pg_terminate_backend($1, 60000)', [pid]);
    }
    await holder.end();
  };
  const pidOf = async (): Promise<number | undefined> => {
    const own = running.process.pid;
    if (!launcher) return own;
    return (
      (await seeProcesses()).find(
        ({ parent, command }) => parent === own && command.includes(script),
      )?.pid ?? own
    );
  };
  const killAlone = async (): Promise<void> => {
    signalProcess(await pidOf(), 'SIGKILL');
    await endSessions();
  };
  return {
    killAlone,
    kill: async () => {
      const pid = await pidOf();
      for (const seen of await guardProcesses()) {
        if (seen.parent === pid) process.kill(seen.pid, 'SIGKILL');
      }
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
