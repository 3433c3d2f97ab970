import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { statuses, useStarts } from '../../support/starts.ts';

describe('an embedded PostgreSQL that is killed under the service', () => {
  const starts = useStarts();
  const { running, postmaster, logIn, expectServing } = starts;

  const data = (name: string): string => join(starts.folder, 'postgres', name);
  const port = async (): Promise<string | undefined> =>
    (await readFile(data('postmaster.pid'), 'utf8')).split('\n')[3];

  /**
   * Kills the first process of the server, as the kernel does when the memory is used up.
   * @returns its port
   */
  async function killServer(): Promise<string | undefined> {
    const before = await port();
    process.kill((await postmaster()) ?? 0, 'SIGKILL');
    return before;
  }

  it('the service starts a killed embedded PostgreSQL again on its port, and a command that runs meanwhile uses it', async () => {
    const service = await running();
    const client = await logIn(service);
    const portBefore = await killServer();

    const doctor = await runCommand('scripts/tenant.ts', ['doctor'], starts.environment);
    await eventually(async () => (await client.get(statuses)).status === 200);

    expect(doctor).to.include({ code: 0, stderr: '' });
    expect(await port()).to.equal(portBefore);
    await expectServing(service);
    await eventually(() => service.output.stdout.includes('"event":"embedded_postgres_back"'));
    await runCommand('scripts/tenant.ts', ['list'], starts.environment);
    await expectServing(service);
  });

  it('the service starts the embedded PostgreSQL again at growing pauses, with the reason in the log, until it comes up', async () => {
    const service = await running();
    const configuration = data('postgresql.conf');
    await rename(configuration, `${configuration}.kept`);
    await writeFile(configuration, 'no_such_setting = on\n', { mode: 0o600 });
    const portBefore = await killServer();

    const failures = () =>
      service.output.stdout
        .split('\n')
        .filter(line => line.includes('"event":"embedded_postgres_down"'));
    await eventually(() => failures().length === 3);
    const log = await readFile(join(starts.folder, 'postgres.log'), 'utf8');
    await rename(`${configuration}.kept`, configuration);

    for (const line of failures()) {
      expect(line).to.match(/configuration file .* contains errors/);
    }
    expect(log.match(/unrecognized configuration parameter/g)).to.have.length(failures().length);
    const times = failures().map(line => Number(JSON.parse(line).time));
    const [first = 0, second = 0, third = 0] = times;
    expect(third - second).to.be.greaterThan((second - first) * 1.3);
    await eventually(() => expectServing(service).then(() => true));
    expect(await port()).to.equal(portBefore);
  });
});
