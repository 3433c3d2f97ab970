import { writeFile } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { onStopSignal } from '../src/signals.ts';
import { progress } from './bench-progress.ts';
import { describeEnvironment } from './environment.ts';
import { help, isComplete, type Options, readOptions } from './options.ts';
import { type Finished, type Results, report } from './report.ts';
import { openTestbed } from './testbed.ts';
import { Tokens } from './tokens.ts';
import { tuningReport } from './tuning-report.ts';

/** The bench: starts all servers, runs the workloads, prints the report and removes everything. See `--help`. */
async function main(): Promise<void> {
  const options = checkedOptions();
  if (!options) return;
  let close = async (): Promise<void> => {};
  let interrupted = false;
  const stop = (): void => {
    interrupted = true;
    progress('stopping everything');
    close().finally(() => process.exit(130));
  };
  onStopSignal(['SIGINT', 'SIGTERM'], stop, () => process.exit(130));
  try {
    const onOpen = (end: () => Promise<void>): void => {
      close = end;
    };
    const results = await runWorkloads(options, false, onOpen);
    let tuned: Results | undefined;
    if (options.tuned) {
      await close();
      progress('once more, with PostgreSQL tuned');
      tuned = await runWorkloads(options, true, onOpen);
    }
    await printReport(options, results, tuned);
  } catch (error) {
    if (interrupted) return; // the error comes from the stop
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  } finally {
    if (!interrupted) await close();
  }
}

function checkedOptions(): Options | undefined {
  try {
    const options = readOptions(process.argv.slice(2));
    if (!options.help) return options;
    console.log(help);
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\n\nSee: npm run -s bench -- --help`);
    process.exitCode = 2;
  }
  return undefined;
}

async function runWorkloads(
  options: Options,
  isTuned: boolean,
  onOpen: (close: () => Promise<void>) => void,
): Promise<Results> {
  const testbed = await openTestbed({ tenantCount: options.tenants, isTuned, onOpen });
  const bench = { testbed, tokens: new Tokens(testbed), rounds: options.rounds, seconds: options.seconds };
  const environment = await describeEnvironment(testbed, options);
  const finished: Finished[] = [];
  for (const { name, title, run } of options.workloads) {
    progress(`${name}: ${title} (load ${loadavg()[0]?.toFixed(1)})`);
    finished.push({ name, title, ...(await run(bench)) });
  }
  return { environment, finished };
}

async function printReport(options: Options, { environment, finished }: Results, tuned?: Results): Promise<void> {
  const text = [report(finished, environment), ...(tuned ? [tuningReport(finished, tuned)] : [])].join('\n\n');
  if (options.json) console.log(JSON.stringify({ environment, workloads: finished, tuned }, null, 2));
  else console.log(text);
  if (!isComplete(options)) return;
  const introduction = 'The report of the last complete run of `npm run -s bench`.';
  await writeFile(new URL('RESULTS.md', import.meta.url), `# Results\n\n${introduction}\n\n${text}\n`);
}

await main();
