import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  compatibleReleases,
  makeEarlierBuild,
  useMigrationsOfThisBuild,
} from '../support/earlier-builds.ts';
import { copyBuild } from '../support/next-build.ts';

/**
 * Tests that know the service by its responses only: neither by the SQL of a migration nor by
 * the time that it takes.
 */
const contractTests = [
  ...[
    'codes',
    'contract',
    'country',
    'currency',
    'entity',
    'entity-status',
    'field-errors',
    'lists',
  ].map(name => `test/sales/resources/${name}.test.ts`),
  ...['promotion', 'system-option', 'tax-code'].map(name => `test/sales/resources/${name}.test.ts`),
  'test/sales/activity/activity.test.ts',
  'test/sales/audit/audit-log.test.ts',
  ...['me', 'own-sessions', 'permissions', 'sessions'].map(
    name => `test/accounts/auth/${name}.test.ts`,
  ),
];

describe('drill: builds on the schema of a later one', function () {
  this.timeout(900_000);
  const cleanUps: (() => Promise<void>)[] = [];

  after(async () => {
    for (const cleanUp of cleanUps) await cleanUp();
  });

  it('this build passes its contract tests on the schema after later compatible migrations of both databases', async () => {
    const build = await copyBuild('src', 'migrations', 'scripts', 'test', 'tenants', 'docs');
    cleanUps.push(build.remove);
    for (const [folder, text] of Object.entries(laterMigrations)) {
      await writeFile(build.file(`migrations/${folder}/9999-later.ts`), text);
    }
    await expectPassing('this build', build.file('.'));
  });

  it('the oldest and the newest release that the migrations are compatible with pass their contract tests', async () => {
    const releases = await compatibleReleases();

    for (const release of new Set([releases.at(0), releases.at(-1)])) {
      if (release === undefined) continue; // a migration since the last release is not compatible
      const build = await makeEarlierBuild(release);
      cleanUps.push(build.remove);
      await useMigrationsOfThisBuild(build);
      await expectPassing(build.name, build.file('.'));
    }
  });
});

async function expectPassing(name: string, folder: string): Promise<void> {
  const startedAt = performance.now();
  const { code, output } = await runTests(folder);
  const passed = Number(/(\d+) passing/.exec(output)?.[1] ?? 0);
  console.log(
    `${name}: ${passed} tests in ${Math.round((performance.now() - startedAt) / 1_000)} s`,
  );
  expect(code, output).to.equal(0);
  expect(passed).to.be.greaterThan(100);
}

/** Runs the contract tests of a build, with a PostgreSQL of their own. */
function runTests(folder: string): Promise<{ code: number | null; output: string }> {
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

/** Compatible migrations of tables that the contract tests write to. */
const laterMigrations = {
  control: `
import { Migration } from '@mikro-orm/migrations';

export class Later extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql("alter table tenants add column later text not null default 'unknown'");
    this.addSql('create index users_first_name_index on users (first_name)');
  }
}
`,
  tenant: `
import { Migration } from '@mikro-orm/migrations';

export class Later extends Migration {
  static readonly compatible = true;

  override up(): void {
    // Audit entries show whole rows, so a column of an audited table would change what the tests
    // expect of them.
    this.addSql("alter table activities add column later text not null default 'unknown'");
    this.addSql('create table later (entity_id bigint references entities on delete cascade)');
    this.addSql('create index promotions_name_index on promotions (name)');
    this.addSql('drop index entities_currency_id_id_index');
  }
}
`,
};
