import { readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import type { Command } from 'commander';
import { contentsText } from '../../deploy/handbook/contents.ts';
import { referenceText } from '../../deploy/handbook/reference.ts';
import { readConfig, settingNames } from '../../src/lib/config/config.ts';
import { createProgram } from '../../src/operator/cli/program.ts';
import { errors, warnings } from '../../src/operator/doctor/finding.ts';
import { WorkerMetrics } from '../../src/service/metrics/worker-metrics.ts';
import { documentPage, documents, documentText } from '../../src/service/pages/document-page.ts';
import { expectKnownCommand } from '../support/known-commands.ts';
import { useWorld } from '../support/world.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

describe("operators' handbook", () => {
  let incidents: string;
  let reference: string;
  let program: Command;
  const world = useWorld();

  before(async () => {
    [incidents, reference] = await Promise.all([
      documentText('docs/operate/incidents.md'),
      documentText('docs/operate/reference.md'),
    ]);
    program = await createProgram(() => true);
  });

  it('every setting is in .env.example, with its default', async () => {
    const lines = [...(await documentText('.env.example')).matchAll(/^(#?)([A-Z_]+)=(.*)$/gm)];
    expect(lines.map(([, , name]) => name)).to.have.members(settingNames);
    const defaults = lines
      .filter(([, commented]) => commented === '')
      .map(([, , name = '', value]) => [name, value]);
    expect(readConfig(Object.fromEntries(defaults))).to.deep.equal(readConfig({}));
  });

  it('the contents and the reference are those of this build (npm run -s deploy:generate)', async () => {
    expect(reference).to.equal(await referenceText());
    expect(await documentText('docs/operate.md')).to.equal(await contentsText());
  });

  it('the reference has a row for every setting and every command', () => {
    for (const name of settingNames) {
      expect(reference).to.match(new RegExp(`^\\| \`${name}\` \\|`, 'm'));
    }
    for (const path of commandPaths(program)) {
      expect(reference, path).to.match(new RegExp(`^\\| \`${path}[ \`]`, 'm'));
    }
  });

  it('every command line in the handbook names a command and options that exist', async () => {
    const pages = await Promise.all(documents.map(({ file }) => documentText(file)));
    const lines = [...pages.join('\n').matchAll(/bin\/backoffice ((?:[^`\n\\]|\\\n)+)/g)];
    expect(lines).to.have.length.greaterThan(50);
    for (const [, text = ''] of lines) {
      expectKnownCommand(
        program,
        text.split(/\s+/).filter(word => word !== '\\'),
      );
    }
  });

  it('the handbook has a row for every error of doctor, with the commands that mend it, and no other row', () => {
    const section = incidents.split('\n### Errors\n')[1]?.split('\n### ')[0] ?? '';
    const rows = [...section.matchAll(/^\| `(\w+)` \| .* \| (.*) \|$/gm)].map(
      ([, name = '', commands = '']) => [
        name,
        [...commands.matchAll(/`((?:bin\/backoffice|psql) [^`]+)`/g)].map(([, command]) => command),
      ],
    );

    expect(Object.fromEntries(rows)).to.deep.equal(errors);
  });

  it('the handbook has a row for every warning of doctor, and no other row', () => {
    const section = incidents.split('\n### Warnings\n')[1]?.split('\n## ')[0] ?? '';
    const names = [...section.matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name);

    expect(names).to.deep.equal(warnings);
  });

  it('the handbook has a row for every metric of the service, and no row for another one', async () => {
    const response = await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`);
    const ofWorkers = await new WorkerMetrics(() => ({ serving: 0, died: 0 })).render();
    const texts = `${await response.text()}${ofWorkers}`;
    const names = [...new Set([...texts.matchAll(/^# TYPE (\w+)/gm)].map(match => match[1] ?? ''))];
    const own = names.filter(name => !/^(process|nodejs)_/.test(name));
    expect(namesUnder('Metrics', reference)).to.have.members(own);
  });

  it('the handbook has a row for every event of the log, and no row for another one', async () => {
    expect(namesUnder('Events of the log', reference)).to.have.members(await loggedEvents());
  });
});

describe('Markdown pages', () => {
  for (const page of documents) {
    it(`every link of ${page.file} to a file leads to a file of the repository`, async () => {
      const text = await readFile(join(root, page.file), 'utf8');
      const targets = [...text.matchAll(/\]\(([^)#]+)/g)].map(match => match[1] ?? '');
      for (const target of targets) await readFile(join(root, dirname(page.file), target));
    });

    it(`every anchor in ${page.file} names a heading of the page that it leads to`, async () => {
      const text = await documentText(page.file);
      for (const [, linked = '', id] of text.matchAll(/\]\(([\w./-]*)#([^)]+)\)/g)) {
        const file = linked === '' ? page.file : join(dirname(page.file), linked);
        const target = documents.find(each => each.file === file);
        const rendered =
          target &&
          (await documentPage(target, { base: 'http://backoffice.test', hasHandbook: true }));
        expect(rendered, `${linked}#${id}`).to.match(new RegExp(`<h[1-6] id="${id}">`));
      }
    });

    it(`the list beside ${page.file} has each of its headings of levels 2 and 3`, async () => {
      const rendered = await documentPage(page, {
        base: 'http://backoffice.test',
        hasHandbook: true,
      });
      const [, list = ''] = /aria-label="On this page">([\s\S]*?)<\/nav>/.exec(rendered) ?? [];
      const linked = [...list.matchAll(/href="#([^"]+)"/g)].map(match => match[1]);
      expect(linked).to.deep.equal(
        [...rendered.matchAll(/<h[23] id="([^"]+)">/g)].map(match => match[1]),
      );
    });

    it(`every code block of ${page.file} can be focused and has a label`, async () => {
      const text = await readFile(join(root, page.file), 'utf8');
      const rendered = await documentPage(page, {
        base: 'http://backoffice.test',
        hasHandbook: true,
      });

      const blocks = [...rendered.matchAll(/<pre[^>]*>/g)];
      expect(blocks).to.have.length([...text.matchAll(/^ *```/gm)].length / 2);
      for (const [tag] of blocks) {
        expect(tag).to.match(/^<pre tabindex="0" role="group" aria-label="[^"]+">$/);
      }
    });

    it(`the page of ${page.file} has the address of the service in place of the example address`, async () => {
      const text = await readFile(join(root, page.file), 'utf8');
      const rendered = await documentPage(page, { base: 'https://erp.test', hasHandbook: true });
      expect(rendered).to.not.include('api.example.com');
      expect(rendered.includes('https://erp.test/')).to.equal(
        text.includes('https://api.example.com/'),
      );
    });
  }
});

/** `provision`, `server add`, … */
function commandPaths(command: Command, prefix = ''): string[] {
  return command.commands.flatMap(child => {
    const path = `${prefix}${child.name()}`;
    return child.commands.length > 0 ? commandPaths(child, `${path} `) : [path];
  });
}

/** The names that the first column of the tables under a heading of level 2 has. */
function namesUnder(heading: string, page: string): (string | undefined)[] {
  return rowsUnder(heading, page).map(([, name]) => name);
}

function rowsUnder(heading: string, page: string): RegExpExecArray[] {
  const section = page.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
  return [...section.matchAll(/^\| `(\w+)`(?: \((\w+)\))?/gm)];
}

/** Every `event` that the sources of the service log. */
async function loggedEvents(): Promise<string[]> {
  const entries = await readdir(join(root, 'src'), { recursive: true });
  const sources = await Promise.all(
    entries
      .filter(name => name.endsWith('.ts'))
      .map(name => readFile(join(root, 'src', name), 'utf8')),
  );
  const events = sources.flatMap(source =>
    [...source.matchAll(/\bevent: '(\w+)'/g)].map(match => match[1] ?? ''),
  );
  return [...new Set(events)];
}
