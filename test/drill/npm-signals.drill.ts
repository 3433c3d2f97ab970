import { expect } from 'chai';
import { startProgram } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { isAlive, seeProcesses } from '../support/processes.ts';
import { startMs, useStarts } from '../support/starts.ts';
import { useWorld } from '../support/world.ts';

for (const workers of [1, 2]) {
  describe(`drill: signals to npm and to a service with PROCESSES=${workers}`, () => {
    // No Redis is there, so each worker counts requests by itself.
    const settings = { PROCESSES: String(workers), REDIS_URL: 'redis://127.0.0.1:1' };
    const { expectNpmToFinish, launch, stopped } = useStarts(settings);

    it('after SIGTERM to npm alone, the request finishes, npm exits with 0 and no process remains', () =>
      expectNpmToFinish(['start'], 'Finished after SIGTERM', pid => process.kill(pid, 'SIGTERM')));

    it('the two signals of Ctrl-C under npm run start let the running request finish', () =>
      // To the whole process group, like a terminal.
      expectNpmToFinish(['run', 'start'], 'Finished by start', pid =>
        process.kill(-pid, 'SIGINT'),
      ));

    it('after SIGINT to npm alone, the request finishes, npm exits with 0 and no process remains', () =>
      expectNpmToFinish(['start'], 'Finished after SIGINT', pid => process.kill(pid, 'SIGINT')));

    // `dev` names .env only if it exists: node --watch aborts on a signal when an
    // --env-file-if-exists is missing (https://github.com/nodejs/node/issues/64819).
    it('the two signals of Ctrl-C under npm run dev let the running request finish', () =>
      expectNpmToFinish(['run', 'dev'], 'Finished by dev', pid => process.kill(-pid, 'SIGINT')));

    if (workers > 1) {
      it('Ctrl-C while the workers start ends all processes with the exit code of the signal, and prints nothing', async () => {
        await stopped();
        const { process: primary, ended } = launch();

        const started = await eventually(async () => {
          const seen = (await seeProcesses()).filter(({ parent }) => parent === primary.pid);
          const pids = seen
            .filter(({ command }) => command.includes('main.ts'))
            .map(({ pid }) => pid);
          return pids.length === workers && pids;
        }, startMs);

        for (const pid of [...started, primary.pid ?? 0]) process.kill(pid, 'SIGINT');
        const { code, stdout, stderr } = await ended;
        expect({ code, stdout, stderr }).to.deep.equal({ code: 130, stdout: '', stderr: '' });

        await eventually(() => !started.some(isAlive));
      });
    }
  });
}

describe('drill: the program of the package', () => {
  const world = useWorld();

  it('bin/backoffice is the program of the package', async () => {
    const running = startProgram('npx', ['backoffice', '--version', '--json'], world.environment);
    running.process.stdin.end();
    const { code, stdout } = await running.ended;
    expect(code).to.equal(0);
    expect(JSON.parse(stdout)).to.have.all.keys('build', 'tenant', 'control', 'node');
  });
});
