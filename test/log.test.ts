import { expect } from 'chai';
import { type RunningScript, startScript } from './support/command-line.ts';
import { eventually } from './support/eventually.ts';

/** Starts a process that runs `body` with a `log`. */
function startLogging(body: string): RunningScript {
  const source = `
    import { createLog } from './src/log.ts';
    const { log, flush } = createLog('info');
    process.on('exit', flush);
    ${body}`;
  return startScript('--input-type=module', ['-e', source], {});
}

const messages = (text: string): string[] =>
  text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line).msg);

describe('log of a process', () => {
  it('the log has every line in order, even if the process exits right after the last one', async () => {
    const { code, stdout } = await startLogging(`
      for (let i = 0; i < 1_000; i++) log.info('line ' + i);
      process.exit(3);`).ended;
    expect(code).to.equal(3);
    expect(messages(stdout)).to.deep.equal(Array.from({ length: 1_000 }, (_, i) => `line ${i}`));
  });

  it('a warning or error is written at once with all earlier lines, even if the process is killed', async () => {
    for (const level of ['warn', 'error', 'fatal']) {
      const { signal, stdout } = await startLogging(`
        log.info('before');
        log.${level}('trouble');
        process.kill(process.pid, 'SIGKILL');`).ended;
      expect(signal).to.equal('SIGKILL');
      expect(messages(stdout)).to.deep.equal(['before', 'trouble']);
    }
  });

  it('a single line is written while the process is still running', async () => {
    const running = startLogging(`log.info('alone'); setTimeout(() => {}, 60_000);`);
    try {
      await eventually(() => running.output.stdout.includes('alone'), 10_000);
      expect(running.process.exitCode).to.equal(null);
    } finally {
      running.process.kill('SIGKILL');
      await running.ended;
    }
  });
});
