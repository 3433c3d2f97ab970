import { useStarts } from '../support/starts.ts';

describe('drill: signals to npm', () => {
  const { expectNpmToFinish } = useStarts();

  it('after SIGINT to npm alone, the request finishes, npm exits with 0 and no process remains', () =>
    expectNpmToFinish(['start'], 'Finished after SIGINT', pid => process.kill(pid, 'SIGINT')));

  // `dev` names .env only if it exists: node --watch aborts on a signal when an --env-file-if-exists is missing
  // (https://github.com/nodejs/node/issues/64819).
  it('the two signals of Ctrl-C under npm run dev let the running request finish', () =>
    // To the whole process group, like a terminal.
    expectNpmToFinish(['run', 'dev'], 'Finished by dev', pid => process.kill(-pid, 'SIGINT')));
});
