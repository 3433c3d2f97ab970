import { once } from 'node:events';
import { expect } from 'chai';
import { type RunningScript, startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { jsonLines } from '../../support/json-lines.ts';

/** Starts a process that runs `body` with a `log`. */
function startLogging(body: string, redirection?: string): RunningScript {
  const source = `
    import { createLog } from './src/lib/log/log.ts';
    const { log, output } = createLog('info');
    process.on('exit', output.flushFinally);
    ${body}`;
  return startScript('--input-type=module', ['-e', source], {}, redirection);
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
      await eventually(() => running.output.stdout.includes('alone'), 60_000);
      expect(running.process.exitCode).to.equal(null);
    } finally {
      running.process.kill('SIGKILL');
      await running.ended;
    }
  });

  it('a full pipe does not block the process; its reader later gets the buffered lines and the number of dropped ones', async () => {
    const running = startLogging(`
      let lines = 0;
      let maxPauseMs = 0;
      let last = performance.now();
      const timer = setInterval(() => {
        maxPauseMs = Math.max(maxPauseMs, performance.now() - last);
        last = performance.now();
        for (let i = 0; i < 500; i++) log.info({ line: lines++ }, 'x'.repeat(200));
        if (lines < 10_000) return;
        clearInterval(timer);
        process.stderr.write(JSON.stringify({ maxPauseMs, dropped: output.droppedLines }));
        process.stdin.once('data', () => process.exit());
      }, 10);`);
    running.process.stdout.pause();

    const { maxPauseMs, dropped } = JSON.parse(
      await eventually(() => running.output.stderr || undefined),
    );

    // The output has no reader yet: a write that blocks would pause the process for ever.
    expect(maxPauseMs).to.be.below(30_000);
    // 64 KiB in the pipe and 1 MiB in the buffer are about 4,500 lines
    expect(dropped).to.be.within(4_000, 7_000);

    running.process.stdout.resume();
    await eventually(() => running.output.stdout.includes('log_lines_dropped'));
    running.process.stdin.end('x');
    const { code, stdout } = await running.ended;

    const written = jsonLines(stdout);
    const reports = written.filter(({ event }) => event === 'log_lines_dropped');
    const numbers = written.filter(({ line }) => line !== undefined).map(({ line }) => line);

    expect(code).to.equal(0);
    expect(reports.map(({ lines }) => lines)).to.deep.equal([dropped]);
    expect(numbers).to.deep.equal(Array.from({ length: 10_000 - dropped }, (_, line) => line));
  });

  it('a process whose pipe is not read exits with its code within 2 s', async () => {
    const running = startLogging(`
      for (let i = 0; i < 10_000; i++) log.info('x'.repeat(200));
      process.stderr.write('exits');
      process.exit(4);`);
    running.process.stdout.pause();

    const exited = once(running.process, 'exit');
    await eventually(() => running.output.stderr || undefined);
    const startedAt = performance.now();

    expect((await exited)[0]).to.equal(4);
    // The process would not exit at all without the limit.
    expect(performance.now() - startedAt).to.be.below(30_000);

    running.process.stdout.resume();
    await running.ended;
  });

  it('a full device and a closed pipe do not end the process', async () => {
    const body = `
      for (let i = 0; i < 10_000; i++) log.info('x'.repeat(200));
      log.fatal('trouble');
      setTimeout(() => process.stderr.write(String(output.droppedLines > 0)), 300);`;
    const full = await startLogging(body, '>/dev/full').ended;
    expect(full).to.deep.equal({ code: 0, signal: null, stdout: '', stderr: 'true' });
    const closed = startLogging(body);
    closed.process.stdout.destroy();
    expect(await closed.ended).to.deep.equal({ code: 0, signal: null, stdout: '', stderr: 'true' });
  });
});
