import { expect } from 'chai';
import { withBackupLock } from '../../../src/operator/backup/backup-lock.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { startScript } from '../../support/command-line.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('backup runs that overlap', () => {
  const server = use(() => createDedicatedServer(['log_statement=all']));
  const archives = useServerFolder('archives');
  let environment: Record<string, string>;

  /** Does `work` while another process of the installation has the lock of a run. */
  const besideRun = <T>(work: () => Promise<T>): Promise<T> =>
    withBackupLock(server.installation.controlUrl, 'archives', work);

  before(async () => {
    environment = { ...server.environment, ...(await backupSettings(archives)) };
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    await backUp(environment);
  });

  it('a run of all tenants that meets another run ends with exit 0 and a line, so that no timer mails it', async () => {
    const run = (...args: string[]) =>
      runCommand('scripts/tenant.ts', ['backup', 'run', '--all', ...args], environment);

    const { code, stdout, stderr } = await besideRun(() => run());
    const json = await besideRun(() => run('--json'));

    expect(code, stderr).to.equal(0);
    expect(stdout).to.equal('Another backup run is in progress: this one did nothing.\n');
    expect(JSON.parse(json.stdout)).to.include({ state: 'running' });
  });

  it('a run of named tenants waits for the other run, and then archives them', async () => {
    const attempts = async (): Promise<number> =>
      (await server.log()).split('select pg_try_advisory_lock(').length;
    const before = await attempts();
    await server.sql(
      `insert into currencies (code, name) values ('SEK', 'Krona')`,
      await server.databaseOf('acme'),
    );

    const waiting = await besideRun(async () => {
      const started = startScript('scripts/tenant.ts', ['backup', 'run', 'acme'], environment);
      await eventually(async () => (await attempts()) > before + 2, 60_000);
      return started;
    });
    const { code, stdout, stderr } = await waiting.ended;

    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/^acme: archived \d+ rows/m);
  });
});
