import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { startProgram } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { useFolder } from '../../support/use.ts';
import { useWorld } from '../../support/world.ts';

/** The command by which each shell starts on a terminal, and loads the completion. */
const shells = {
  bash: { start: 'bash --norc --noprofile -i', load: 'source <(backoffice completion bash)' },
  zsh: {
    start: 'zsh -fi',
    load: 'autoload -Uz compinit; compinit -D -u; source <(backoffice completion zsh)',
  },
  fish: { start: 'fish --no-config -i', load: 'backoffice completion fish | source' },
};
const hasScript = spawnSync('script', ['--version']).stdout?.includes('util-linux') ?? false;
const printable = String.fromCharCode(...Array.from({ length: 95 }, (_, index) => 32 + index));

/** Addresses of users, one per tenant, so that Tab inserts the only one. */
const values = [
  `x${printable}`,
  'x$(touch ran)@y.z',
  '$(touch ran)@y.z',
  '`touch ran`@y.z',
  ';touch ran;',
  '|touch ran&',
  '>ran',
  '~root',
  '-rf',
  '=ls',
  '#x',
  '!!',
  '%1',
  '"\'"',
  "it's",
  'a:b@c=d',
  '{a,b}*?[a-z]^',
  'a\\:b\\',
  ' a  b ',
  'Größe 社 😀',
];
/**
 * The beginning of a value that is typed before Tab completes it, in the quotes that the shells
 * themselves insert.
 */
const halves: [typed: string, value: string][] = [
  ['x\\$\\(t', 'x$(touch ran)@y.z'],
  ['x\\$\\(touch\\ ran\\)@', 'x$(touch ran)@y.z'],
  ['a:b@', 'a:b@c=d'],
  ['a:b@c=', 'a:b@c=d'],
  ['\\`touch\\ r', '`touch ran`@y.z'],
  ['\\~r', '~root'],
  ['Größe\\ ', 'Größe 社 😀'],
];

/** Adds the tests of bash; for a drill, those of zsh and fish. */
export function testCompletedValues(isDrill: boolean): void {
  const world = useWorld();
  const answers = useFolder();
  let folder: string;
  /**
   * The answers of the program: all shells ask the same, and a process for each answer would
   * take 0.1 s of CPU time.
   */
  before(async () => {
    await withConnection(world.installation.controlUrl, async client => {
      // the users keep the role of another tenant
      await client.query('set session_replication_role = replica');
      for (const [index, email] of values.entries()) {
        const id = 1_000 + index;
        const names = {
          id,
          guid: crypto.randomUUID(),
          slug: `v${index}`,
          database_name: `v${id}`,
          role_name: `v${id}`,
        };
        const copy = (table: string): string =>
          `insert into ${table} overriding system value select (jsonb_populate_record(t, $1)).* from ${table} t where t.${
            table === 'tenants'
              ? `slug = 'globex'`
              : `tenant_id = (select id from tenants where slug = 'globex')`
          } limit 1`;
        await client.query(copy('tenants'), [names]);
        await client.query('insert into tenant_slugs (slug, tenant_guid) values ($1, $2)', [
          names.slug,
          names.guid,
        ]);
        await client.query(copy('users'), [{ id, guid: names.guid, tenant_id: id, email }]);
      }
    });
    const store = async (name: string, ...args: string[]): Promise<void> => {
      const { code, stdout, stderr } = await runCommand(
        'scripts/backoffice.ts',
        args,
        world.environment,
      );
      expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
      await writeFile(join(answers, name), stdout);
    };
    for (const shell of Object.keys(shells)) await store(shell, 'completion', shell);
    const typed = halves.map(([word, value]) => [word.replaceAll(/\\(.)/g, '$1'), value] as const);
    for (const [word, value] of [...values.map(each => ['', each] as const), ...typed]) {
      const slug = `v${values.indexOf(value)}`;
      const digest = createHash('sha1').update(word).digest('hex');
      await store(`${slug}-${digest}`, '__complete', 'user', 'disable', slug, word);
    }
  });

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-values-'));
    // Completes with the answers of the real program; another command records its arguments.
    const program = `#!/bin/sh
case $1 in
  __complete) exec cat "${answers}/$4-$(printf '%s' "$5" | sha1sum | cut -c-40)" ;;
  completion) exec cat "${answers}/$2" ;;
  *) printf '%s\\0' "$@" end >> ${folder}/arguments ;;
esac`;
    await writeFile(join(folder, 'backoffice'), program);
    await chmod(join(folder, 'backoffice'), 0o755);
  });
  afterEach(() => rm(folder, { recursive: true }));

  /**
   * Types lines on a terminal, each one when the command before it has run.
   * @returns the last argument of each
   */
  async function typeLines(
    shell: keyof typeof shells,
    lines: string[],
  ): Promise<(string | undefined)[]> {
    const { start, load } = shells[shell];
    const running = startProgram('script', ['-qfc', `cd ${folder} && exec ${start}`, '/dev/null'], {
      ...world.environment,
      PATH: `${folder}:${process.env.PATH}`,
      HOME: folder,
      TERM: 'dumb',
      LANG: 'C.UTF-8',
    });
    const readRuns = async (): Promise<string[]> => {
      const text = await readFile(join(folder, 'arguments'), 'utf8').catch(() => '');
      return text.split('\0end\0').slice(0, -1);
    };
    running.process.stdin.write(`${load}; backoffice loaded\r`);
    for (const [index, line] of [...lines, 'exit'].entries()) {
      await eventually(async () => (await readRuns()).length > index, 60_000);
      running.process.stdin.write(`${line}\r`);
    }
    await running.ended;
    return (await readRuns()).slice(1).map(each => each.split('\0').at(-1));
  }

  for (const shell of isDrill ? (['zsh', 'fish'] as const) : (['bash'] as const)) {
    const isInstalled = hasScript && spawnSync(shell, ['-c', 'true']).status === 0;
    const test = isInstalled ? it : it.skip;
    test(`${shell} passes every completed value on unchanged, and runs nothing that is in it`, async () => {
      // Fish would expand the tilde: it offers such a value only when its first character has
      // been typed.
      const offered = values.filter(value => !(shell === 'fish' && value.startsWith('~')));
      const lines = offered.map(value => `backoffice user disable v${values.indexOf(value)} \t`);
      expect(await typeLines(shell, lines)).to.deep.equal(offered);
      expect(existsSync(join(folder, 'ran'))).to.equal(false);
    }).timeout(300_000);

    test(`${shell} completes a value from the middle of what it has quoted`, async () => {
      const lines = halves.map(
        ([typed, value]) => `backoffice user disable v${values.indexOf(value)} ${typed}\t`,
      );
      expect(await typeLines(shell, lines)).to.deep.equal(halves.map(([, value]) => value));
      expect(existsSync(join(folder, 'ran'))).to.equal(false);
    }).timeout(300_000);
  }

  if (isDrill) return;

  it('a control character in a stored value or its description does not reach the terminal', async () => {
    const { rows } = await withConnection(world.installation.controlUrl, client =>
      client.query(
        `update users set email = v.email, first_name = E'\\u001b]0;title\\u0007' from (values
           (1000, E'x\\ny'), (1001, E'\\u001b[2Jx'), (1002, E'x\\u009b2J'), (1003, 'x')) v (id, email)
          where users.id = v.id returning users.id`,
      ),
    );
    expect(rows).to.have.length(4);

    for (const [index, expected] of ['', '', '', 'x'].entries()) {
      const { stdout } = await runCommand(
        'scripts/backoffice.ts',
        ['__complete', 'user', 'disable', `v${index}`, ''],
        world.environment,
      );

      expect(stdout.split('\t')[0]).to.equal(expected);
      expect(stdout.replace(/[\t\n]/g, '')).not.to.match(/\p{Cc}/u);
    }
  });
}
