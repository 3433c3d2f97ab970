import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  argumentsOf,
  killMoments,
  provisionChecks,
} from '../operator/lifecycle/provision-checks.ts';
import { expectNoOrphan } from '../operator/lifecycle/provisioned-server.ts';
import { runScript } from '../support/command-line.ts';
import { createDedicatedServer, manifestOf } from '../support/dedicated-server.ts';
import { jsonLines } from '../support/json-lines.ts';
import { runCommand } from '../support/run-command.ts';
import { use } from '../support/use.ts';
import { useWorld } from '../support/world.ts';

describe('drill: killed and concurrent provisions', () => {
  const world = useWorld();

  const { killAtMoments, expectCompleted, provisionAlone, expectServed } = provisionChecks(
    () => world,
  );

  it('of 16 provisions killed at any moment, the next run completes each, and no tenant is served before', () =>
    killAtMoments(16));

  for (const moment of killMoments) {
    it(`a provision killed ${moment.name} is completed by the next one, and the tenant is not served before`, () =>
      expectCompleted(moment));
  }

  it('concurrent provisions of different slugs create each tenant', async () => {
    const slugs = ['one-of-three', 'two-of-three', 'three-of-three'];
    const documents = await Promise.all(slugs.map(slug => provisionAlone(...argumentsOf(slug))));
    await Promise.all(documents.map(expectServed));
    expect(new Set(documents.map(({ guid }) => guid)).size).to.equal(3);
  });
});

describe('drill: processes that provision the same tenants', () => {
  const server = use(createDedicatedServer);

  it('three processes that provision the same 12 tenants create each tenant once', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'backoffice-manifests-'));
    try {
      const slugs = Array.from({ length: 12 }, (_, number) => `folder-${number}`);
      for (const slug of slugs) {
        await writeFile(join(folder, `${slug}.json`), JSON.stringify(manifestOf(slug)));
      }
      await writeFile(join(folder, 'bad.json'), '{ "slug": "postgres" }');
      await writeFile(join(folder, 'broken.json'), '{');
      await writeFile(
        join(folder, 'elsewhere.json'),
        JSON.stringify({ ...manifestOf('nowhere'), server: 'none' }),
      );

      const start = (...args: string[]) => runScript('scripts/tenant.ts', args, server.environment);
      const runs = await Promise.all([
        start('provision', '--file', folder, '--json'),
        start('provision', '--file', folder, '--json'),
        start('provision', '--file', folder, '--json'),
      ]);

      const made = new Map<string, number>();
      for (const { code, stdout, stderr } of runs) {
        expect({ code, stderr }).to.deep.equal({ code: 1, stderr: '' });
        const lines = jsonLines(stdout);
        expect(lines).to.have.length(15);
        expect(
          lines
            .filter(({ error }) => error)
            .map(({ file }) => file)
            .sort(),
        ).to.deep.equal(['bad.json', 'broken.json', 'elsewhere.json']);

        for (const { slug, created } of lines) {
          if (created) made.set(slug, (made.get(slug) ?? 0) + 1);
        }
      }
      expect([...made].sort()).to.deep.equal(slugs.sort().map(slug => [slug, 1]));

      const guids = await server.control<{ guid: string; database: string }>(
        `select guid, database_name as database from tenants where slug like 'folder-%'`,
      );
      for (const { guid, database } of guids) {
        expect(
          await server.sql('select guid from tenant_identity', database),
          database,
        ).to.deep.equal([{ guid }]);
      }

      const again = await runCommand(
        'scripts/tenant.ts',
        ['provision', '--file', folder],
        server.environment,
      );
      expect(again.code).to.equal(1);
      expect(again.stdout)
        .to.include('folder-0 exists already: nothing was changed.')
        .and.to.include('15 manifests, 3 failed.');

      await expectNoOrphan(server);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
