import { expect } from 'chai';
import { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { startMs, statuses, useStarts } from '../support/starts.ts';
import { useWorld } from '../support/world.ts';

describe('drill: starts that end early', () => {
  const { launch, stopped, postmaster } = useStarts();
  const world = useWorld();

  it('a signal during the start ends the process at once with the exit code of the signal', async () => {
    await stopped();

    // The process sends the signal itself as soon as its PostgreSQL starts: this process may be
    // too late.
    const signal = `import { existsSync } from 'node:fs';
      const waiting = setInterval(() => {
        if (!existsSync(process.env.DATA_DIR + '/postgres/postmaster.pid')) return;
        clearInterval(waiting);
        process.kill(process.pid, 'SIGINT');
      }, 1);`;

    const { stdout, code } = await launch({ NODE_OPTIONS: importing(signal) }).ended;
    expect({ stdout, code }).to.deep.equal({ stdout: '', code: 130 });
    await eventually(async () => (await postmaster()) === undefined, 30_000);
  });

  it('an error that nothing handled ends the service with exit code 1, also after SIGTERM', async () => {
    const fault = `process.once('SIGUSR2', () => { throw new Error('unhandled'); })`;
    const service = launch({
      ...world.environment,
      SHUTDOWN_DELAY: '20s',
      NODE_OPTIONS: importing(fault),
    });

    const eventOf = (name: string) =>
      service.output.stdout
        .split('\n')
        .filter(line => line.includes(`"event":"${name}"`))
        .map(line => JSON.parse(line))[0];

    const listening = await eventually(() => eventOf('listening'), startMs);
    const url = `http://127.0.0.1:${listening.port}`;
    const response = await new Client(url).get(statuses);
    expect(response.status).to.equal(403);
    expect(response.body.code).to.equal('tenant_required');

    service.process.kill('SIGTERM');
    await eventually(() => eventOf('stopping'));
    service.process.kill('SIGUSR2');
    const { code, stdout } = await service.ended;

    expect(code).to.equal(1);
    expect(stdout).to.include('"event":"fault"');
    expect(stdout, 'only an embedded PostgreSQL gets a demo tenant').not.to.match(/demo/i);
  });
});

/** A value of NODE_OPTIONS with which a process runs this code first. */
function importing(code: string): string {
  return `--import=data:text/javascript,${encodeURIComponent(code)}`;
}
