import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { root } from './support/command-line.ts';

const run = promisify(execFile);

describe('subjects of commits', () => {
  let folder = '';

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-subjects-'));
    await git('init', '--quiet');
  });
  after(() => rm(folder, { recursive: true }));

  async function git(...args: string[]): Promise<string> {
    const author = ['-c', 'user.name=test', '-c', 'user.email=test@example.test'];
    const { stdout } = await run('git', [...author, ...args], { cwd: folder });
    return stdout.trim();
  }

  async function commit(subject: string): Promise<string> {
    await git('commit', '--quiet', '--allow-empty', '--message', subject);
    return git('rev-parse', '--short', 'HEAD');
  }

  function check(since: string): Promise<{ code: number; stderr: string }> {
    return run(join(root, '.ci/commit-subjects'), [since], { cwd: folder }).then(
      ({ stderr }) => ({ code: 0, stderr }),
      ({ code, stderr }: { code: number; stderr: string }) => ({ code, stderr }),
    );
  }

  it('CI refuses a subject of more than 72 characters after the named commit, and none before it', async () => {
    await commit('x'.repeat(80));
    const named = await commit('Name the commit after which the rule holds');
    await commit('ä'.repeat(72));

    const kept = await check(named);
    const tooLong = await commit(`Say ${'too much '.repeat(8)}at once`);
    const refused = await check(named);

    expect(kept).to.deep.equal({ code: 0, stderr: '' });
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.match(
      new RegExp(`^${tooLong}: the subject has 83 characters, and may have 72: Say too`),
    );
    expect(refused.stderr.trim().split('\n')).to.have.lengthOf(1);
  });

  it('a clone without the named commit is not checked, and nothing fails', async () => {
    await commit('y'.repeat(80));

    expect(await check('0123456789012345678901234567890123456789')).to.deep.equal({
      code: 0,
      stderr: '',
    });
  });
});
