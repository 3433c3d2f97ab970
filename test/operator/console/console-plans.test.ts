import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { catalogue } from '../../../src/operator/cli/catalogue.ts';
import { type Operation, operationsOf } from '../../../src/operator/command/operation.ts';
import { type Field, isOutside } from '../../../src/operator/command/operation-fields.ts';
import { argumentsOf, secretOf } from '../../../src/operator/console/command-line.ts';
import { checkForm } from '../../../src/operator/console/form-values.ts';
import { operationPath } from '../../../src/operator/console/links.ts';
import { withheld } from '../../../src/operator/console/offered.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { useWorld } from '../../support/world.ts';
import { openConsole } from './console-client.ts';

const nameInside = 'a-name-inside';

/**
 * Makes a file, a folder with a file in it, and a server, which a plan must not look at; and a
 * path and an address of the same lengths, where nothing is.
 */
async function openTraps() {
  const folder = await mkdtemp(join(tmpdir(), 'plans-'));
  const there = join(folder, 'there');
  await mkdir(there);
  await writeFile(join(there, `${nameInside}.json`), '{"a-key-inside":1}');

  let connections = 0;
  const server = createServer(socket => {
    connections++;
    socket.destroy();
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;

  return {
    /** Texts that name something, each with one of its kind that names nothing. */
    pairs: [
      [there, join(folder, 'where')],
      [join(there, `${nameInside}.json`), join(there, `a-name-nobody.json`)],
      [`postgresql://a:b@127.0.0.1:${port}/c`, `postgresql://a:b@127.0.0.2:${port}/c`],
      [`127.0.0.1:${port}`, `127.0.0.2:${port}`],
    ] as const,
    connections: () => connections,
    close: async () => {
      await new Promise(resolve => server.close(resolve));
      await rm(folder, { recursive: true });
    },
  };
}

describe('console: plans of commands that it does not run', () => {
  const world = useWorld();
  const traps = use(openTraps);
  const readOnly = use(() => openForReaders('--read-only'));
  const viewers = use(() => openForReaders('--allow', 'view'));

  /** The operations with a form and a plan. */
  let planned: Operation[];
  before(async () => {
    const all = (await Promise.all(catalogue.map(operationsOf))).flat();
    planned = all.filter(({ name, plan }) => plan && withheld[name] === undefined);
  });

  async function openForReaders(...mode: string[]) {
    const opened = await openConsole(world.environment, ['--no-browser', ...mode]);
    return { ...opened, close: async () => expect(await opened.stop()).to.equal(0) };
  }

  /**
   * Returns texts of the fields that an operation cannot do without.
   * @param isLeast true without those that another field can replace
   */
  function neededTexts({ fields }: Operation, isLeast = true): Record<string, string[]> {
    const samples: Record<string, string> = {
      slug: 'acme',
      email: world.acme.admin.email,
      adminEmail: 'new@example.test',
      role: 'Member',
      server: 'default',
      program: '1',
      key: '00000000-0000-4000-8000-000000000000',
      url: 'postgresql://a:b@127.0.0.3:1/c',
      file: '/nowhere',
    };
    const needed = Object.entries(fields).filter(
      ([, field]) => field.isRequired || (!isLeast && field.neededUnless !== undefined),
    );
    return Object.fromEntries(
      needed.map(([name, { kind, secretKind, choices, unit }]) => [
        name,
        [choices?.[0] ?? samples[name] ?? samples[secretKind ?? kind] ?? (unit ? '7' : 'sample')],
      ]),
    );
  }

  const isFree = ({ kind, choices }: Field): boolean => kind !== 'flag' && choices === undefined;

  it('a console makes no plan with a field that names a file, a folder or a URL, of a command that it does not run', async () => {
    const tried: string[] = [];
    for (const operation of planned) {
      const outside = Object.entries(operation.fields).filter(([, field]) => isOutside(field));

      for (const [field] of outside) {
        for (const opened of [readOnly, viewers]) {
          const texts = { ...neededTexts(operation, false), [field]: [traps.pairs[0][0]] };
          const fields = Object.fromEntries(
            Object.entries(texts).map(([name, [text = '']]) => [name, text]),
          );
          for (const step of ['plan', 'anything']) {
            const page = await opened.submit(operationPath(operation.name), { ...fields, step });
            expect(page.status, `${operation.name} ${field}`).to.equal(422);
            expect(page.text, `${operation.name} ${field}`).to.include('So it makes no plan with');
          }
        }
        tried.push(`${operation.name} ${field}`);
      }
    }

    expect(tried).to.include.members([
      'provision file',
      'export to',
      'server add url',
      'restore from',
      'clone from',
      'edit appUrl',
    ]);
    for (const opened of [readOnly, viewers]) {
      expect((await opened.get('/log')).text).to.include('This console has run nothing yet');
    }
    expect(traps.connections()).to.equal(0);
  });

  it('a form of a command that the console does not run has no button for a plan that needs a file or a URL', async () => {
    for (const name of ['export', 'server add']) {
      const { text } = await readOnly.get(operationPath(name));
      expect(text, name).to.include('This console does not run it').and.not.include('value="plan"');
    }
    expect((await readOnly.get('/operations/provision')).text).to.include('value="plan"');
  });

  it('no other field of any operation makes a plan read a file, list a folder or connect to an address', async () => {
    let count = 0;
    for (const operation of planned) {
      const { name, fields } = operation;
      const inside = Object.entries(fields).filter(
        ([, field]) => isFree(field) && !isOutside(field),
      );

      // Fields that another one can replace are left out once, and given once.
      const ways = Object.values(fields).some(({ neededUnless }) => neededUnless)
        ? [true, false]
        : [true];

      for (const [field] of inside) {
        for (const pair of traps.pairs) {
          for (const isLeast of ways) {
            const texts = neededTexts(operation, isLeast);
            const [existing, missing] = await Promise.all(
              pair.map(text => shownPlan(operation, { ...texts, [field]: [text] }, text)),
            );
            expect(existing, `${name} ${field}=${pair[0]}`).to.equal(missing);
            if (existing !== undefined) count++;
          }
        }
        expect(traps.connections(), `${name} ${field}`).to.equal(0);
      }
    }

    expect(count).to.be.greaterThan(100);
  });

  /**
   * Returns all that a plan prints, without one of its texts; undefined when the form refuses
   * a text.
   */
  async function shownPlan(
    operation: Operation,
    texts: Record<string, string[]>,
    text: string,
  ): Promise<string | undefined> {
    const form = { operation, texts };
    if (checkForm(form).length > 0) return undefined;

    const { code, stdout, stderr } = await runCommand(
      'scripts/backoffice.ts',
      argumentsOf(form, true),
      world.environment,
      secretOf(form) ?? '',
    );
    const shown = `${code}\n${stdout}\n${stderr}`;
    if (!text.includes(nameInside)) expect(shown, operation.name).to.not.include(nameInside);
    expect(shown, operation.name).to.not.include('a-key-inside');

    return shown
      .replaceAll(text, '…')
      .replaceAll(text.toLowerCase(), '…')
      .replace(/ +/g, ' ')
      .replace(/It has [\d.]+ \w+ of/, 'It has … of'); // other programs use the disk, too
  }
});
