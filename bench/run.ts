import { writeFile } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { onStopSignal } from '../src/lib/runtime/signals.ts';
import { compareBuilds } from './against.ts';
import { comparisonJson, comparisonReport } from './against-report.ts';
import { progress } from './bench-progress.ts';
import { describeEnvironment } from './environment.ts';
import { type AgainstOptions, help, isComplete, type Options, readOptions } from './options.ts';
import { type Results, report } from './report.ts';
import { openTestbed, type Testbed, type TestbedOptions } from './testbed.ts';
import { Tokens } from './tokens.ts';
import { tuningReport } from './tuning-report.ts';
import { inTurns } from './turns.ts';

/** A run of the workloads on one server of PostgreSQL. */
interface Run extends Results {
  readonly isTuned: boolean;
  readonly testbed: Testbed;
  readonly tokens: Tokens;
}

/**
 * The bench: runs the workloads or compares builds, prints the report and removes everything.
 * See `--help`.
 */
async function main(): Promise<void> {
  const options = checkedOptions();
  if (!options) return;
  const closers: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(closers.map(each => each()));
  };
  let interrupted = false;
  const stop = (): void => {
    interrupted = true;
    progress('stopping everything');
    void close().finally(() => process.exit(130));
  };
  onStopSignal(['SIGINT', 'SIGTERM'], stop, () => process.exit(130));
  const fail = (error: unknown): void => {
    if (interrupted) return; // the error comes from the stop
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  };
  const onOpen = (opened: () => Promise<void>): number => closers.push(opened);
  try {
    if (options.against !== undefined) {
      const comparison = await compareBuilds(options, onOpen).catch(fail);
      if (comparison) {
        console.log(options.json ? json(comparisonJson(comparison)) : comparisonReport(comparison));
      }
      return;
    }

    const runs: Run[] = [];
    await runWorkloads(options, runs, onOpen).catch(fail);
    // The results of the workloads before a failure are written, too.
    const [results, tuned] = runs;
    if (results && !interrupted && results.finished.length > 0) {
      await printReport(options, results, tuned);
    }
  } finally {
    if (!interrupted) await close();
  }
}

function json(value: object): string {
  return JSON.stringify(value, null, 2);
}

function checkedOptions(): Options | AgainstOptions | undefined {
  try {
    const options = readOptions(process.argv.slice(2));
    if (!options.help) return options;
    console.log(help);
  } catch (error) {
    console.error(
      `${error instanceof Error ? error.message : error}\n\nSee: npm run -s bench -- --help`,
    );
    process.exitCode = 2;
  }
  return undefined;
}

/**
 * Adds the run with the defaults of PostgreSQL, and then that with PostgreSQL tuned if the
 * options ask for it.
 */
async function runWorkloads(
  options: Options,
  runs: Run[],
  onOpen: TestbedOptions['onOpen'],
): Promise<void> {
  for (const isTuned of options.tuned ? [false, true] : [false]) {
    const testbed = await openTestbed({ tenantCount: options.tenants, isTuned, onOpen });
    if (options.tuned) await testbed.setIdle(true);
    const environment = await describeEnvironment(testbed, options);
    runs.push({ isTuned, testbed, tokens: new Tokens(testbed), environment, finished: [] });
  }

  for (const { name, title, run } of options.workloads) {
    progress(`${name}: ${title} (load ${loadavg()[0]?.toFixed(1)})`);

    const works = runs.map(({ isTuned, testbed, tokens, finished }) => ({
      begin: async () => {
        if (!options.tuned) return;
        progress(`with PostgreSQL ${isTuned ? 'tuned' : 'at its defaults'}`);
        await testbed.setIdle(false);
      },
      run: async (passTurn: () => Promise<void>) => {
        const result = await run({
          testbed,
          tokens,
          rounds: options.rounds,
          seconds: options.seconds,
          passTurn,
        });
        finished.push({ name, title, ...result });
      },
      end: async () => {
        if (options.tuned) await testbed.setIdle(true);
      },
    }));

    await inTurns(works).catch(error => {
      throw new Error(
        `the workload ${name} failed: ${error instanceof Error ? error.message : error}`,
        {
          cause: error,
        },
      );
    });
  }
}

async function printReport(
  options: Options,
  { environment, finished }: Results,
  tuned?: Results,
): Promise<void> {
  const text = [
    report(finished, environment),
    ...(tuned ? [tuningReport(finished, tuned)] : []),
  ].join('\n\n');
  const tunedResults = tuned && { environment: tuned.environment, workloads: tuned.finished };
  if (options.json) console.log(json({ environment, workloads: finished, tuned: tunedResults }));
  else console.log(text);
  if (!isComplete(options) || process.exitCode) return;
  const introduction = 'The report of the last complete run of `npm run -s bench`.';
  await writeFile(
    new URL('RESULTS.md', import.meta.url),
    `# Results\n\n${introduction}\n\n${text}\n`,
  );
}

await main();
