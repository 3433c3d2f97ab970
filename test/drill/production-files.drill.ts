import { execFile } from 'node:child_process';
import { chmod, cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { readDeploy } from '../deploy/read-deploy.ts';
import { type RunningScript, root, startProgram } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { sendSteadily, summaryOf } from '../support/steady-load.ts';
import { createWorld, type World } from '../support/world.ts';

const statuses = '/api/v1/EntityStatus';
const run = promisify(execFile);
const user = '10001';
const maxStartSeconds = 2;
const asUser = [
  '--reuid',
  user,
  '--regid',
  user,
  '--clear-groups',
  '--no-new-privs',
  '--bounding-set',
  '-all',
];
const requestsPerSecond = 50;

/**
 * The service as the image has it: its files, its user, and a tree that this user cannot write.
 */
describe('drill: files of the image', function () {
  this.timeout(600_000);
  let world: World;
  let folder: string;
  let port: number;
  let managementPort: number;
  const processes: RunningScript[] = [];

  before(async function () {
    if (process.getuid?.() !== 0) {
      console.log('only root can start a process as another user: this drill is skipped');
      this.skip();
    }
    [world, folder] = await Promise.all([createWorld(), buildImage()]);
    [port, managementPort] = [await freePort(), await freePort()];
  });
  after(async () => {
    for (const { process: child } of processes) child.kill('SIGKILL');
    await world?.close();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  /**
   * Starts the entry point of the image as process of its user, on a read-only mount of its
   * files.
   */
  function start(args: string[], settings: Record<string, string> = {}): RunningScript {
    const own = {
      ...world.environment,
      PORT: String(port),
      MANAGEMENT_PORT: String(managementPort),
      LOG_LEVEL: 'info',
    };
    const environment = {
      ...own,
      DATA_DIR: '/data',

      RATE_LIMIT_GLOBAL: '1000000/60s',
      ...settings,
    };
    const values = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
    const node = [
      process.execPath,
      '--import',
      './src/lib/runtime/require-node.js',
      '--import',
      './src/lib/runtime/v8-flags.ts',
      ...args,
    ];
    // The mount is of this process only, so it needs no clean-up.
    const mount = `mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec env -i "$@"`;
    const command = [
      '--mount',
      'sh',
      '-c',
      mount,
      folder,
      ...values,
      'setpriv',
      ...asUser,
      ...node,
    ];
    // Every program replaces the one before it, so signals reach Node.
    const running = startProgram('unshare', command, {});
    processes.push(running);
    return running;
  }

  const isReady = async (): Promise<boolean> => {
    const response = await fetch(`http://127.0.0.1:${managementPort}/health/ready`).catch(
      () => undefined,
    );
    return response?.status === 200;
  };

  it('the files of the image serve after 2 s of CPU time, as another user on a read-only file system', async () => {
    const startedAt = performance.now();
    const running = start(['src/main.ts']);
    await eventually(isReady, 60_000);

    const [seconds, elapsedMs] = [
      await cpuSeconds(running.process.pid ?? 0),
      performance.now() - startedAt,
    ];
    console.log(`ready after ${seconds} s of CPU time, ${Math.round(elapsedMs)} ms in all`);
    expect(seconds).to.be.below(maxStartSeconds);

    const client = (await world.login(world.acme)).at(`http://127.0.0.1:${port}`);
    expect((await client.get(statuses)).status).to.equal(200);
    expect((await fetch(`http://127.0.0.1:${port}/docs/deploy`)).status).to.equal(200);

    running.process.kill('SIGINT');
    expect((await running.ended).code, running.output.stderr).to.equal(0);
  });

  it('SIGTERM under load fails no request of a balancer that heeds /health/ready, and loses no write', async () => {
    const running = start(['src/main.ts']);
    await eventually(isReady, 60_000);
    const client = (await world.login(world.acme)).at(`http://127.0.0.1:${port}`);
    const created = new Set<string>();

    const notReady = sleep(3_000).then(() => {
      running.process.kill('SIGTERM');
      return eventually(async () => !(await isReady()), 60_000);
    });

    const served = await sendSteadily(requestsPerSecond, notReady, async number => {
      if (number % 5 !== 0) return failureOf(await client.get(statuses));
      const Title = `Under load ${number}`;
      const response = await client.post(statuses, { Title });
      if (response.status === 201) created.add(Title);
      return failureOf(response);
    });

    console.log(JSON.stringify(summaryOf(served)));
    expect((await running.ended).code).to.equal(0);
    expect(summaryOf(served).failed).to.equal(0);
    expect(created.size).to.be.greaterThan(20);

    const stored = await (await world.login(world.acme)).get(statuses);
    expect(stored.body.map((each: { Title: string }) => each.Title)).to.include.members([
      ...created,
    ]);
  });

  it('the commands run from the files of the image', async () => {
    const { code, stdout, stderr } = await start(['scripts/backoffice.ts', 'list', '--json']).ended;
    expect(code, stderr).to.equal(0);
    expect(stderr).to.equal('');
    expect(stdout).to.include(world.acme.slug).and.to.include(world.globex.slug);
  });
});

/** Returns the status of a response that succeeded, and otherwise what went wrong. */
function failureOf({ status }: { status: number }): number | string {
  return status < 300 ? status : `status ${status}`;
}

/**
 * Returns the CPU time that a process and its threads have used, from `/proc`, which counts in
 * hundredths of a second.
 */
async function cpuSeconds(pid: number): Promise<number> {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).replace(/^.*\) /, '').split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/**
 * Does what the Dockerfile says: copies the same files, and runs the same commands.
 * @returns the folder
 */
async function buildImage(): Promise<string> {
  const image = await mkdtemp(join(tmpdir(), 'backoffice-image-'));
  await chmod(image, 0o755);
  const text = (await readDeploy('Dockerfile')).replaceAll(/ \\\n */g, ' ');

  for (const [, instruction = '', words = ''] of text.matchAll(/^(COPY|RUN) (.*)$/gm)) {
    if (words.startsWith('--from')) continue;

    if (instruction === 'COPY') {
      for (const source of words.split(' ').slice(0, -1)) {
        await cp(join(root, source), join(image, source), { recursive: true });
      }
    } else if (words.startsWith('[')) {
      const [, ...args] = JSON.parse(words) as string[];
      await run('chmod', ['-R', 'a+rX,go-w', image]);
      await run('install', [
        '-d',
        '-m',
        '700',
        '-o',
        user,
        '-g',
        user,
        join(image, 'node_modules/.cache'),
      ]);
      await run('setpriv', [...asUser, process.execPath, ...args], { cwd: image });
    } else if (!words.startsWith('mkdir')) {
      await run('sh', ['-c', words], { cwd: image });
    }
  }

  return image;
}
