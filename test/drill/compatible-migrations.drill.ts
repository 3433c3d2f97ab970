import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { checkOut, compatibleCommits, type EarlierBuild, useMigrationsOfThisBuild } from '../support/earlier-builds.ts';

/**
 * Tests that know the service by its responses only: neither by the SQL of a migration nor by the time that it takes.
 */
const contractTests = [
  ...['codes', 'contract', 'country', 'currency', 'entity', 'entity-status', 'field-errors', 'lists'].map(
    name => `test/resources/${name}.test.ts`,
  ),
  ...['promotion', 'system-option', 'tax-code'].map(name => `test/resources/${name}.test.ts`),
  'test/activity/activity.test.ts',
  'test/audit/audit-log.test.ts',
  ...['me', 'own-sessions', 'permissions', 'sessions'].map(name => `test/auth/${name}.test.ts`),
];

describe('drill: earlier builds on the schema of this one', function () {
  this.timeout(900_000);
  const builds: EarlierBuild[] = [];

  after(async () => {
    for (const build of builds) await build.remove();
  });

  it('the oldest and the newest build that the migrations are compatible with pass their contract tests', async () => {
    const commits = await compatibleCommits();
    if (commits.length === 0) console.log('no earlier build is known: no compatible migration, or no git clone');
    for (const commit of new Set([commits.at(0), commits.at(-1)])) {
      if (commit === undefined) continue;
      const build = await checkOut(commit);
      builds.push(build);
      await useMigrationsOfThisBuild(build);
      const startedAt = performance.now();
      const { code, output } = await runTests(build);
      const passed = Number(/(\d+) passing/.exec(output)?.[1] ?? 0);
      console.log(`${commit.slice(0, 7)}: ${passed} tests in ${Math.round((performance.now() - startedAt) / 1_000)} s`);
      expect(code, output).to.equal(0);
      expect(passed).to.be.greaterThan(100);
    }
  });
});

/** Runs the contract tests of a build, with a PostgreSQL of their own. */
function runTests({ folder }: EarlierBuild): Promise<{ code: number | null; output: string }> {
  const files = contractTests.filter(path => existsSync(join(folder, path)));
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(
    process.execPath,
    ['node_modules/mocha/bin/mocha.js', '--reporter', 'dot', '--retries', '1', ...files],
    {
      cwd: folder,
      env: { PATH, HOME },
    },
  );
  let output = '';
  child.stdout.setEncoding('utf8').on('data', text => (output += text));
  child.stderr.setEncoding('utf8').on('data', text => (output += text));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', code => resolve({ code, output }));
  });
}
