import { readdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { backupSettings } from '../support/backup-settings.ts';
import { runScript, startScript } from '../support/command-line.ts';
import { useFolder } from '../support/use.ts';
import { sql, useWorld } from '../support/world.ts';

const kills = 12;

describe('drill: killed backup runs', () => {
  const folder = useFolder();
  const world = useWorld();
  let environment: Record<string, string>;

  before(async () => {
    environment = { ...world.environment, ...(await backupSettings(folder)) };
    for (let number = 0; number < 6; number++) await world.provision(`tenant-${number}`);
  });

  it('a run that is killed at any moment leaves nothing that looks whole, and the next run completes it', async () => {
    const run = (...args: string[]) =>
      runScript('scripts/tenant.ts', ['backup', ...args, '--json'], environment);

    const startedAt = performance.now();
    expect((await run('init')).code).to.equal(0);
    expect((await run('run', '--all')).code).to.equal(0);
    const runMs = performance.now() - startedAt;

    for (let kill = 0; kill < kills; kill++) {
      await sql(world.acme, 'insert into currencies (code, name) values ($1, $1)', [`C${kill}`]);
      const killed = startScript('scripts/tenant.ts', ['backup', 'run', '--all'], environment);
      await sleep((runMs * (kill + 1)) / (kills + 1));
      killed.process.kill('SIGKILL');
      await killed.ended;

      const again = await run('run', '--all');
      expect(again.code, again.stdout + again.stderr).to.equal(0);
      const verified = await run('verify');
      expect(verified.code, verified.stdout).to.equal(0);
      const drilled = await run('drill', '--count', '20');
      expect(drilled.code, drilled.stdout).to.equal(0);

      const names = (await readdir(folder, { recursive: true })).filter(name =>
        /\.(age|unfinished)$/.test(name),
      );
      const listed = JSON.parse((await run('list')).stdout).map(
        ({ name }: { name: string }) => name,
      );
      expect(names, 'files that the list does not have').to.have.members(listed);
    }
  });
});
