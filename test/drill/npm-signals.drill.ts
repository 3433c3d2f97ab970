import { expect } from 'chai';
import { startProgram } from '../support/command-line.ts';
import { useStarts } from '../support/starts.ts';
import { useWorld } from '../support/world.ts';

describe('drill: signals to npm', () => {
  const { expectNpmToFinish } = useStarts();

  it('after SIGTERM to npm alone, the request finishes, npm exits with 0 and no process remains', () =>
    expectNpmToFinish(['start'], 'Finished after SIGTERM', pid => process.kill(pid, 'SIGTERM')));

  it('the two signals of Ctrl-C under npm run start let the running request finish', () =>
    // To the whole process group, like a terminal.
    expectNpmToFinish(['run', 'start'], 'Finished by start', pid => process.kill(-pid, 'SIGINT')));

  it('after SIGINT to npm alone, the request finishes, npm exits with 0 and no process remains', () =>
    expectNpmToFinish(['start'], 'Finished after SIGINT', pid => process.kill(pid, 'SIGINT')));

  // `dev` names .env only if it exists: node --watch aborts on a signal when an --env-file-if-exists is missing
  // (https://github.com/nodejs/node/issues/64819).
  it('the two signals of Ctrl-C under npm run dev let the running request finish', () =>
    expectNpmToFinish(['run', 'dev'], 'Finished by dev', pid => process.kill(-pid, 'SIGINT')));
});

describe('drill: the program of the package', () => {
  const world = useWorld();

  it('npx backoffice is the program of the package', async () => {
    const running = startProgram('npx', ['backoffice', '--version', '--json'], world.environment);
    running.process.stdin.end();
    const { code, stdout } = await running.ended;
    expect(code).to.equal(0);
    expect(JSON.parse(stdout)).to.have.all.keys('build', 'tenant', 'control', 'node');
  });
});
