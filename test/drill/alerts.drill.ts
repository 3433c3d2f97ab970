import { execFile, spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { faults } from '../deploy/alert-faults.ts';
import { alertTests, calm, extend, metricsIn } from '../deploy/alert-tests.ts';
import { readYaml } from '../deploy/read-deploy.ts';
import { root } from '../support/command-line.ts';
import { useFolder } from '../support/use.ts';
import { useWorld } from '../support/world.ts';

interface Rules {
  readonly groups: { readonly rules: { readonly expr: string }[] }[];
}

const run = promisify(execFile);

(spawnSync('promtool', ['--version']).error ? describe.skip : describe)('drill: alerts', () => {
  const world = useWorld();
  const folder = useFolder();

  async function scrape(): Promise<string> {
    const client = await world.login(world.acme);
    for (const path of ['EntityStatus', 'Countries', 'Currencies', 'Users']) {
      expect((await client.get(`/api/v1/${path}`)).status).to.be.below(500);
    }
    return (await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`)).text();
  }

  it('each fault fires its own alert and no other one, and a day like a calm minute of the service fires none', async () => {
    const [{ groups }] = (await readYaml('prometheus/rules.yaml')) as [Rules];
    const rules = groups.flatMap(group => group.rules);

    const recording = { first: await scrape(), second: await scrape() };
    const names = rules.flatMap(({ expr }) => metricsIn(expr));
    const base = (minutes: number): Record<string, string> =>
      calm(extend(recording, names, minutes), minutes);
    expect(Object.keys(base(1))).to.have.length.greaterThan(20);

    const files = alertTests(join(root, 'deploy/prometheus/rules.yaml'), base, faults);
    const paths = files.map((_, number) => join(folder, `alerts-${number}.json`));
    await Promise.all(
      files.map((file, number) => writeFile(paths[number] ?? '', JSON.stringify(file))),
    );

    const { stdout } = await run('promtool', ['test', 'rules', ...paths]).catch(
      error => error as { stdout: string },
    );
    expect(stdout.match(/SUCCESS/g), stdout).to.have.length(files.length);
  });
});
