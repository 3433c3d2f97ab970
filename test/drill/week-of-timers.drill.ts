import { execFile, spawnSync } from 'node:child_process';
import { readFile, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { mock } from 'node:test';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { createFleetCounter, type FleetCounts } from '../../src/control/fleet-counts.ts';
import { type Installation, openInstallation } from '../../src/control/installation.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { createArchiveWriter } from '../../src/operator/backup/archive-writer.ts';
import { withBackupLock } from '../../src/operator/backup/backup-lock.ts';
import { drillArchives } from '../../src/operator/backup/check/drill-archives.ts';
import { applyRetention } from '../../src/operator/backup/retention/apply-retention.ts';
import { runBackup, type WriteArchive } from '../../src/operator/backup/run-backup.ts';
import { openTarget } from '../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../src/operator/backup/target/target.ts';
import { initTarget } from '../../src/operator/backup/writer.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { root } from '../support/command-line.ts';
import { createDedicatedServer } from '../support/dedicated-server.ts';
import { runCommand } from '../support/run-command.ts';
import { useServerFolder } from '../support/server-folder.ts';
import { writeSmall } from '../support/small-archives.ts';
import { succeed } from '../support/succeed.ts';
import { use, useFolder } from '../support/use.ts';

const minuteMs = 60_000;
const days = Number(process.env.DAYS ?? 7);
/** From here on, somebody has a recovery host. */
const hostDay = Math.ceil(days / 2);
const backupMinutes = 5;
const drillMinute = 17;
const [retentionHour, retentionMinute] = [3, 17];

/** The values at which an alert of the backups looks, in a minute of the week. */
interface Sample {
  readonly minute: number;
  readonly backup: FleetCounts['backup'];
}

/** The timers of a kit run for a week, which a simulated clock shortens to minutes. */
(spawnSync('promtool', ['--version']).error ? describe.skip : describe)(
  'drill: a week of backup timers',
  function () {
    this.timeout(1_800_000);
    const server = use(createDedicatedServer);
    const archives = useServerFolder('archives');
    const folder = useFolder();
    let environment: Record<string, string>;
    let installation: Installation;
    let target: Target;
    let startedAt: number;

    /** Gives what is written to a folder the time of this process, in place of the machine's. */
    function inSimulatedTime(folderTarget: Target): Target {
      const write = folderTarget.write.bind(folderTarget);
      folderTarget.write = async (name, body) => {
        const written = await write(name, body);
        await utimes(join(archives, name), new Date(), new Date());
        return written;
      };

      return folderTarget;
    }

    /**
     * Sets the clock of this process and, by the file that its functions read, that of
     * PostgreSQL.
     */
    const setClock = async (time: number): Promise<void> => {
      mock.timers.setTime(time);
      await writeFile(join(folder, 'clock'), new Date(time).toISOString());
    };

    before(async () => {
      environment = { ...server.environment, ...(await backupSettings(archives)) };
      process.env.BACKUP_IDENTITY_FILE = environment.BACKUP_IDENTITY_FILE;
      for (const slug of ['acme', 'globex']) await server.provision(slug);
      await succeed(environment, 'tenant', ['retention', 'acme', '--activity', '2y']);
      for (const [age, rows] of [
        ['3 years', 40],
        ['3 days', 60],
      ]) {
        await server.sql(
          `insert into activities (created_at, activity_code, recorded_by, recorded_from)
         select now() - interval '${age}', 7, 1, '::1' from generate_series(1, ${rows})`,
          await server.databaseOf('acme'),
        );
      }

      const midnight = new Date(Date.now() + 24 * 60 * minuteMs).setUTCHours(0, 0, 0, 0);
      startedAt = midnight;
      const databases = [
        'office',
        await server.databaseOf('acme'),
        await server.databaseOf('globex'),
      ];
      // The planner puts the text of these functions in the place of a call, also in defaults.
      const clock = `volatile language sql as $$select pg_read_file('${join(folder, 'clock')}')::timestamptz$$`;
      for (const database of databases) {
        await server.sql(
          `create or replace function pg_catalog.now() returns timestamptz ${clock};
         create or replace function pg_catalog.clock_timestamp() returns timestamptz ${clock}`,
          database,
        );
      }
      mock.timers.enable({ apis: ['Date'], now: startedAt });
      await setClock(startedAt);
      const [row] = await server.control<{ isSet: boolean }>(
        `select now() = '${new Date(startedAt).toISOString()}' and clock_timestamp() = now() as "isSet"`,
      );
      expect(row?.isSet, 'PostgreSQL follows the clock').to.equal(true);

      installation = await openInstallation(readConfig(environment));
      target = inSimulatedTime(await openTarget(readConfig(environment).backup));
      await withBackupLock(installation.controlUrl, 'archives', control =>
        initTarget(control, target, { takeOver: false, isDryRun: false }),
      );
    });
    after(async () => {
      mock.timers.reset();
      delete process.env.BACKUP_IDENTITY_FILE;
      await installation.close();
    });

    it('the printed timers are those of this week', async () => {
      const printed = async (unit: string, line: RegExp) =>
        expect(await readFile(join(root, 'deploy', unit), 'utf8'), unit).to.match(line);

      await printed('systemd/backoffice-backup.timer', /^OnCalendar=\*:0\/5$/m);
      await printed('systemd/backoffice-drill.timer', /^OnCalendar=\*:17$/m);
      await printed('systemd/backoffice-retention.timer', /^OnCalendar=\*-\*-\* 03:17$/m);
      await printed('kubernetes/backup-cronjob.yaml', /schedule: "\*\/5 \* \* \* \*"/);
      await printed(
        'kubernetes/backup-drill-cronjob.yaml',
        /schedule: "17 \* \* \* \*"\n {2}suspend: true/,
      );
      await printed(
        'kubernetes/retention-cronjob.yaml',
        /schedule: "47 3 \* \* \*"\n {2}suspend: true/,
      );
    });

    it('no run fails and no alert fires, without a recovery host and with one, and the retention waits for the first proof', async () => {
      const { recipients, keep } = readConfig(environment).backup;
      const control = await installation.control();
      const writeReal = await createArchiveWriter(installation);
      const write: WriteArchive = (order, store) =>
        (order.tenant ? writeReal : writeSmall)(order, store);

      const samples: Sample[] = [];
      const retained: string[] = [];

      const countOld = async () =>
        server.sql<{ old: number }>(
          `select count(*)::int as old from activities where created_at < now() - interval '2 years'`,
          await server.databaseOf('acme'),
        );

      for (let minute = 0; minute < days * 24 * 60; minute++) {
        const [day, hour] = [Math.floor(minute / 1_440), Math.floor(minute / 60) % 24];
        const hasHost = day >= hostDay;
        const isDrill = hasHost && minute % 60 === drillMinute;
        const isRetention = hour === retentionHour && minute % 60 === retentionMinute;
        const isBackup = minute % backupMinutes === 0;
        if (!isBackup && !isDrill && !isRetention) continue;

        await setClock(startedAt + minute * minuteMs);

        if (minute % 60 === 0) {
          await server.sql(
            `insert into currencies (code, name) select 'X' || count(*), 'X' from currencies`,
            await server.databaseOf(hour % 2 ? 'acme' : 'globex'),
          );
        }

        if (isBackup) {
          const run = await runBackup(
            installation,
            target,
            { concurrency: 2, keep, recipients },
            write,
          );
          expect(run?.failed, `minute ${minute}`).to.equal(0);
          expect(run?.notRemoved, `minute ${minute}`).to.deep.equal([]);
          expect(run?.lost, `minute ${minute}`).to.deep.equal([]);
        }

        if (isDrill) {
          const outcomes = await drillArchives(installation, target, 5, {});
          expect(
            outcomes.map(({ slug, state }) => `${slug} ${state}`).sort(),
            `minute ${minute}`,
          ).to.deep.equal(['acme proved', 'globex proved']);
        }

        if (isRetention) {
          // A person may run the retention where no recovery host is: it harms nothing.
          const request = {
            concurrency: 2,
            dryRun: false,
            confirmed: false,
            withoutArchive: false,
          };
          const report = await applyRetention(installation, target, request);
          expect(report.failed).to.equal(0);
          retained.push(
            `${hasHost ? 'host' : 'no host'}: ${report.leftOut} left out, ${report.rows} rows`,
          );
        }

        const counts = await createFleetCounter(control)();
        if (counts) samples.push({ minute, backup: counts.backup });
      }

      expect(await alertsIn(samples)).to.equal('');
      const last = retained.indexOf('host: 0 left out, 40 rows');
      expect(retained.slice(0, last), retained.join('; ')).to.satisfy((lines: string[]) =>
        lines.every(line => line.endsWith(': 1 left out, 0 rows')),
      );
      expect(last, retained.join('; ')).to.be.within(hostDay, hostDay + 1);
      expect(retained.slice(last + 1)).to.satisfy((lines: string[]) =>
        lines.every(line => line.endsWith(' 0 rows')),
      );
      expect(await countOld()).to.deep.equal([{ old: 0 }]);

      const { stdout } = await runCommand(
        'scripts/tenant.ts',
        ['backup', 'list', '--json'],
        environment,
      );
      const kept = JSON.parse(stdout).filter(
        ({ slug }: { slug: string | null }) => slug === 'acme',
      );
      expect(kept.length, 'those of six hours, of 48 hours and of 14 days').to.be.within(20, 60);
    });

    /**
     * Returns the alerts of the printed rules, that of a recovery host included, that fire in
     * the week.
     */
    async function alertsIn(samples: readonly Sample[]): Promise<string> {
      const printed = await readFile(join(root, 'deploy/prometheus/rules.yaml'), 'utf8');
      const rules = printed.replace(
        /^( {6})# (?=- alert: BackofficeBackupUnproved| {2}\S| {4}\S)/gm,
        '$1',
      );
      expect(rules).to.match(/^ {6}- alert: BackofficeBackupUnproved\n {8}expr: /m);
      await writeFile(join(folder, 'rules.yaml'), rules);

      const byMinute = new Map(samples.map(each => [each.minute, each.backup]));
      const minutes = Array.from(
        { length: (days * 1_440) / backupMinutes },
        (_, at) => at * backupMinutes,
      );
      const seriesOf = (value: (backup: FleetCounts['backup']) => number | null): string =>
        minutes
          .map(minute => byMinute.get(minute))
          .map(backup => (backup ? value(backup) : null))
          .map(found => found ?? '_')
          .join(' ');
      const since = (time: number | null): number | null => time && time - startedAt / 1_000;
      const metrics: Record<string, string> = {
        backup_last_success_timestamp_seconds: seriesOf(({ lastSuccessAt }) =>
          since(lastSuccessAt),
        ),
        backup_last_proved_timestamp_seconds: seriesOf(({ lastProvedAt }) => since(lastProvedAt)),
        backup_tenants_unarchived: seriesOf(({ tenantsUnarchived }) => tenantsUnarchived),
        backup_archives_faulty: seriesOf(({ faultyArchives }) => faultyArchives),
        backup_archives_not_removed: seriesOf(({ notRemoved }) => notRemoved),
        backup_purged_tenants_left: seriesOf(({ purgedLeft }) => purgedLeft),
      };
      expect(metrics.backup_last_proved_timestamp_seconds).to.match(/^_ .*\d$/);

      const test = {
        rule_files: [join(folder, 'rules.yaml')],
        evaluation_interval: `${backupMinutes}m`,
        tests: [
          {
            interval: `${backupMinutes}m`,
            input_series: Object.entries(metrics).map(([name, values]) => ({
              series: `${name}{job="backoffice"}`,
              values,
            })),
            promql_expr_test: [
              {
                expr: `count_over_time(ALERTS{alertstate="firing",alertname=~"Backoffice(Backup|Archives|Purged).*"}[${days}d])`,
                eval_time: `${days * 1_440 - backupMinutes}m`,
                exp_samples: [],
              },
            ],
          },
        ],
      };
      const file = join(folder, 'week.json');
      await writeFile(file, JSON.stringify(test));
      const { stdout, stderr } = await promisify(execFile)('promtool', [
        'test',
        'rules',
        file,
      ]).catch(error => error as { stdout: string; stderr: string });

      return stdout.includes('SUCCESS') ? '' : stdout + stderr;
    }
  },
);
