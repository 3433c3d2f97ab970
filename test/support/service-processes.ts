import { type RunningScript, startScript } from './command-line.ts';
import { eventually } from './eventually.ts';
import { use } from './use.ts';

/** A process of the service, which listens. */
export interface ServiceProcess extends RunningScript {
  readonly port: number;
  readonly url: string;
}

/** Processes of the service that a test starts, kills and starts again. */
export interface ServiceProcesses {
  /**
   * Starts a process, and waits until it listens: on free ports, unless the environment names
   * others.
   * @param script `src/main.ts` of another build
   */
  start(environment: Readonly<Record<string, string>>, script?: string): Promise<ServiceProcess>;
  /** Kills all processes, and waits until they have ended. */
  killAll(): Promise<void>;
}

const startMs = 120_000;

/**
 * Returns processes that are killed after the tests of a `describe`, before what was made
 * earlier is closed.
 */
export function useServiceProcesses(): ServiceProcesses {
  const processes = createServiceProcesses();
  use(async () => ({ close: processes.killAll }));
  return processes;
}

export function createServiceProcesses(): ServiceProcesses {
  const processes: RunningScript[] = [];

  return {
    start: async (environment, script = 'src/main.ts') => {
      const running = startScript(script, [], { PORT: '0', MANAGEMENT_PORT: '0', ...environment });
      processes.push(running);

      const listening = () => /"event":"listening","port":(\d+)/.exec(running.output.stdout)?.[1];
      const hasEnded = () => running.process.exitCode !== null;
      await eventually(() => listening() || hasEnded(), startMs).catch(() => {});

      const port = Number(listening());
      if (!port) {
        throw new Error(
          `a service does not listen: ${JSON.stringify([hasEnded(), running.output])}`,
        );
      }

      return { ...running, port, url: `http://127.0.0.1:${port}` };
    },
    killAll: async () => {
      for (const { process: child } of processes) child.kill('SIGKILL');
      await Promise.all(processes.map(({ ended }) => ended));
    },
  };
}
