import { Random } from './random.ts';
import { Scheduler } from './scheduler.ts';
import type { ServedDatabase, ServingProcess } from './serving-process.ts';
import type { SimulationOptions } from './simulation-options.ts';
import { violation } from './violation.ts';

/** Returns a world in which processes serve a tenant behind a fence. They hear of each change of `control`. */
export function createFencedWorld<Database extends ServedDatabase, Control extends { onChange: () => void }>(
  control: Control,
  { seed, trace }: SimulationOptions,
) {
  const scheduler = new Scheduler();
  const processes: ServingProcess<Database>[] = [];
  control.onChange = () => {
    for (const process of processes) process.notify();
  };
  return {
    scheduler,
    random: new Random(seed),
    control,
    processes,
    failed: 0,
    isCalm: false,
    writes: 0,
    trace: (line: () => string): void => void trace?.push(`${scheduler.now.toFixed(3)} ${line()}`),
    fail: violation,
  };
}
