import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createProgram } from '../../src/operator/cli/program.ts';
import { root } from '../support/command-line.ts';
import { expectKnownCommand } from '../support/known-commands.ts';
import { podTemplate, readDeploy, readManifests, readYaml } from './read-deploy.ts';

const script = 'scripts/backoffice.ts';

describe('commands in deploy/', () => {
  it('every command that a manifest, a container, a timer or the page of the deployment runs exists, with its options', async () => {
    const program = await createProgram(() => true);
    const commands = (await Promise.all([kubernetes(), compose(), texts()])).flat();
    expect(commands).to.have.length.greaterThan(12);
    for (const words of commands) expectKnownCommand(program, words);
  });

  it('no printed line empties its file, or stores nothing, when its command fails', async () => {
    const pages = await Promise.all(
      ['deploy', 'operate/backup', 'operate/day-one', 'operate/day-two', 'operate/secrets'].map(
        readPage,
      ),
    );
    const lines = pages.flatMap(page => page.replaceAll(/ \\\n +/g, ' ').split('\n'));

    const risky = lines.filter(line =>
      /backoffice .*\| sudo tee |backoffice [^|]*[^2>]> |="\$\(.*backoffice /.test(line),
    );

    expect(risky).to.deep.equal([]);
  });

  it('a unit of systemd that runs a command with a fence lets its second process live when the command is killed', async () => {
    const folder = join(root, 'deploy');
    const units = (await readdir(folder, { recursive: true })).filter(name =>
      name.endsWith('.service'),
    );
    expect(units).to.include('systemd/backoffice-databases.service');

    for (const unit of units) {
      const text = await readDeploy(unit);
      const closesFence = /^ExecStart=.* (move|server drain|restore) /m.test(text);
      expect(!closesFence || /^KillMode=process$/m.test(text), unit).to.equal(true);
    }
  });
});

const readPage = (name: string): Promise<string> => readFile(join(root, `docs/${name}.md`), 'utf8');

async function kubernetes(): Promise<string[][]> {
  const templates = (await readManifests()).flatMap(({ manifest }) => podTemplate(manifest) ?? []);
  const containers: { args?: string[] }[] = templates.flatMap(({ spec }) => spec.containers);
  return containers.flatMap(({ args }) => (args?.[0] === script ? [args.slice(1)] : []));
}

async function compose(): Promise<string[][]> {
  const [{ services }] = (await readYaml('compose.yaml')) as [
    { services: Record<string, { command?: string[] }> },
  ];
  return Object.values(services).flatMap(({ command }) =>
    command?.[0] === script ? [command.slice(1)] : [],
  );
}

async function texts(): Promise<string[][]> {
  const files = [
    await readDeploy('systemd/backoffice-backup.service'),
    await readDeploy('systemd/backoffice-drill.service'),
    await readDeploy('systemd/backoffice-retention.service'),
    await readDeploy('systemd/backoffice-databases.service'),
    // The lines of a shell in which `backoffice` is defined.
    (await readFile(join(root, 'docs/deploy.md'), 'utf8')).replaceAll(
      /(^ +|\| |\()backoffice (?=\w)/gm,
      'bin/backoffice ',
    ),
  ];
  const lines = files.flatMap(file => [
    ...file
      .replaceAll(/ \\\n +/g, ' ')
      .matchAll(/(?:scripts\/backoffice\.ts|bin\/backoffice) ([^|`\n)">]+)/g),
  ]);
  return lines.map(([, words = '']) => words.trim().split(/\s+/));
}
