import { type RunningScript, startScript } from './command-line.ts';
import { eventually } from './eventually.ts';
import type { World } from './world.ts';

/** Processes of the service that a drill starts, kills and starts again. */
export interface ServiceProcesses {
  /** Starts a process in a world, and waits until it listens on the port. */
  start(world: World, port: number, settings?: Record<string, string>): Promise<RunningScript>;
  /** Kills all processes, and waits until they have ended. */
  killAll(): Promise<void>;
}

export function createServiceProcesses(): ServiceProcesses {
  const processes: RunningScript[] = [];
  return {
    start: async (world, port, settings = {}) => {
      const ports = { PORT: String(port), MANAGEMENT_PORT: '0' };
      const environment = { ...world.environment, ...ports, LOG_LEVEL: 'info', ...settings };
      const running = startScript('src/main.ts', [], environment);
      processes.push(running);
      await eventually(() => running.output.stdout.includes('"listening"'), 60_000);
      return running;
    },
    killAll: async () => {
      for (const { process: child } of processes) child.kill('SIGKILL');
      await Promise.all(processes.map(({ ended }) => ended));
    },
  };
}
