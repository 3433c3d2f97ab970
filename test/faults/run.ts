import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Random } from '../simulation/random.ts';
import { checkTables } from './fault-checks.ts';
import { FaultClients } from './fault-clients.ts';
import { type FaultInstallation, startFaultInstallation } from './fault-installation.ts';
import { type Fault, nextFault } from './fault-plan.ts';
import { FaultWorkload } from './fault-workload.ts';

const usage = `npm run -s faults -- [--seed <number>] [--minutes <number>] [--services <number>]

Starts two PostgreSQL servers, Redis if it is installed, and service processes with a TCP proxy before each of their
servers; puts load on them, and lets them fail by a seeded plan: processes and servers are killed and stopped, networks
are cut, slow and silent. Checks during the run and at the end that no acknowledged write is lost or doubled, that no
response is older than promised or of another tenant, that each change has one audit entry, and that all requests
succeed within 5 s after each fault.
  --seed      of the plan; 1 by default. The same seed gives the same faults, not the same timing
  --minutes   duration of the faults; 3 by default
  --services  service processes; 3 by default`;

/** All requests must succeed within this time after a fault. */
const maxRecoveryMs = 5_000;
const pauseMs = 4_000;
const maxPrinted = 40;
/** Characters of a service's log that are printed after a slow recovery. */
const logTail = 2_000;

interface Settings {
  seed: number;
  minutes: number;
  services: number;
}

interface Figures {
  readonly recoveries: { name: string; ms: number }[];
  readonly violations: string[];
}

// Ends the children as well, which the parts of the installation do at `exit`.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));

const settings = readSettings();
if (settings) await run(settings);

/** Returns undefined when there is nothing to run. */
function readSettings(): Settings | undefined {
  try {
    const { values } = parseArgs({
      options: {
        seed: { type: 'string', default: '1' },
        minutes: { type: 'string', default: '3' },
        services: { type: 'string', default: '3' },
        help: { type: 'boolean', default: false },
      },
    });

    if (values.help) {
      console.log(usage);
      return undefined;
    }

    const { seed, minutes, services } = values;
    return {
      seed: numberOf('--seed', seed, /^\d+$/),
      minutes: numberOf('--minutes', minutes, /^\d+(\.\d+)?$/),
      services: numberOf('--services', services, /^[1-9]$/),
    };
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`);
    process.exitCode = 2;
    return undefined;
  }
}

function numberOf(option: string, text: string, pattern: RegExp): number {
  if (!pattern.test(text)) throw new Error(`${option} must not be ${text}`);
  return Number(text);
}

async function run({ seed, minutes, services }: Settings): Promise<void> {
  console.log(`seed ${seed}: starting two PostgreSQL servers and ${services} services …`);
  const installation = await startFaultInstallation(services);
  const startedAt = performance.now();
  const figures: Figures = { recoveries: [], violations: [] };

  const say = (text: string): void =>
    console.log(`${((performance.now() - startedAt) / 1_000).toFixed(1).padStart(7)} s  ${text}`);
  const report = (violation: string): void => {
    figures.violations.push(violation);
    if (figures.violations.length <= maxPrinted) say(`VIOLATION ${violation}`);
  };

  try {
    const clients = new FaultClients(report);
    const workload = new FaultWorkload(installation, clients, seed, report);
    await workload.start();
    await sleep(pauseMs);

    const random = new Random(seed);
    while (performance.now() - startedAt < minutes * 60_000) {
      await injure(nextFault(random, installation), {
        installation,
        clients,
        workload,
        figures,
        say,
        report,
      });
      await sleep(random.between(0.5, 2) * pauseMs);
    }
    await workload.stop();

    const counts = [];
    for (const writes of workload.writes) {
      counts.push({ tenant: writes.tenant.slug, ...(await checkTables(writes, report)) });
    }

    console.table(counts);
    printFigures(figures, clients, (performance.now() - startedAt) / 60_000);
  } finally {
    await installation.close();
  }

  if (figures.violations.length > 0) {
    process.exitCode = 1;
    console.log(
      `to repeat the plan: npm run -s faults -- --seed ${seed} --minutes ${minutes} --services ${services}`,
    );
  }
}

interface Run {
  installation: FaultInstallation;
  clients: FaultClients;
  workload: FaultWorkload;
  figures: Figures;
  say: (text: string) => void;
  report: (violation: string) => void;
}

/**
 * Lets a fault happen, and measures how long after its end all services serve all tenants
 * again.
 */
async function injure(
  fault: Fault,
  { installation, clients, workload, figures, say, report }: Run,
): Promise<void> {
  clients.beginFault();
  await fault.begin();
  await sleep(fault.ms);
  await fault.end();

  const endedAt = performance.now();
  clients.endFault();
  await Promise.all(
    installation.services.flatMap(service =>
      workload.writes.map(async writes => {
        while (
          !(await workload.probe(service, writes)) ||
          !(await workload.append(service, writes))
        ) {
          await sleep(50);
        }
      }),
    ),
  );

  const ms = performance.now() - endedAt;
  figures.recoveries.push({ name: fault.name.replace(/\d+/g, 'n'), ms });
  say(
    `${fault.name}, for ${(fault.ms / 1_000).toFixed(1)} s: all requests succeed ${ms.toFixed(0)} ms after it`,
  );

  if (ms <= maxRecoveryMs) return;
  report(`the recovery from the fault took ${ms.toFixed(0)} ms: ${fault.name}`);
  for (const { name, output } of installation.services) {
    say(`the last log lines of ${name}:\n${output.slice(-logTail)}`);
  }
}

function printFigures(
  { recoveries, violations }: Figures,
  { statuses, maxMs }: FaultClients,
  minutes: number,
): void {
  const kinds = Map.groupBy(recoveries, ({ name }) => name);
  console.table(
    [...kinds].map(([fault, times]) => ({
      fault,
      times: times.length,
      'median recovery (ms)': Math.round(
        times.map(({ ms }) => ms).sort((a, b) => a - b)[times.length >> 1] ?? 0,
      ),
      'longest recovery (ms)': Math.round(Math.max(...times.map(({ ms }) => ms))),
    })),
  );

  const counts = [...statuses]
    .sort(([a], [b]) => a - b)
    .map(([status, count]) => `${status || 'none'}: ${count}`);
  console.log(
    `${minutes.toFixed(1)} minutes, ${recoveries.length} faults; responses ${counts.join(', ')}`,
  );
  console.log(
    `the longest response of an undisturbed process took ${(maxMs / 1_000).toFixed(1)} s`,
  );
  console.log(`${violations.length} violations`);
}
