import { execFile } from 'node:child_process';
import { chmod, mkdtemp, readdir, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../', import.meta.url));

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs the bench, with the arguments of `npm run bench --`.
 * @param folder for temporary files
 */
async function bench(args: readonly string[], folder = tmpdir()): Promise<Outcome> {
  try {
    const env = { ...process.env, TMPDIR: folder };
    const { stdout, stderr } = await run(process.execPath, ['bench/run.ts', ...args], {
      cwd: root,
      env,
    });
    return { code: 0, stdout, stderr };
  } catch (error) {
    return error as Outcome;
  }
}

async function worktrees(): Promise<string> {
  const { stdout } = await run('git', ['worktree', 'list'], { cwd: root });
  return stdout;
}

describe('drill: the bench compares two builds', () => {
  it('a comparison with a commit measures both builds, and leaves no checkout behind', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'bench-against-'));
    await chmod(folder, 0o755); // PostgreSQL may run as another login
    const least = ['--only', 'entity,update', '--rounds', '1', '--seconds', '1', '--json'];

    const { code, stdout, stderr } = await bench(['--against', 'HEAD', ...least], folder);

    expect(code, stderr).to.equal(0);
    const { results } = JSON.parse(stdout);
    expect(
      results.map(({ kind, clients }: { kind: string; clients: number }) => `${kind} ${clients}`),
    ).to.deep.equal(['entity 1', 'entity 16', 'update 1', 'update 16']);
    for (const { ratios } of results) {
      expect(ratios.time.ofMedians).to.be.above(0);
      expect(ratios.cpuService.ofMedians).to.be.above(0);
    }
    expect(await readdir(folder)).to.deep.equal([]);
    expect(await worktrees()).not.to.contain(folder);
    await rmdir(folder);
  });

  it('a comparison with a revision that does not exist is refused, with its name', async () => {
    const { code, stderr } = await bench(['--against', 'no-such-branch']);

    expect(code).to.equal(1);
    expect(stderr).to.contain("--against: this repository has no commit 'no-such-branch'");
  });

  for (const [args, sentence] of [
    [['--only', 'list'], '--only needs --against'],
    [['--against', 'HEAD', '--tuned'], '--tuned does not go with --against'],
    [['--against', 'HEAD', '--only', 'nothing'], "unknown kind of request 'nothing'"],
  ] as const) {
    it(`the arguments ${args.join(' ')} are refused with "${sentence}"`, async () => {
      const { code, stderr } = await bench(args);

      expect(code).to.equal(2);
      expect(stderr).to.contain(sentence);
    });
  }
});
