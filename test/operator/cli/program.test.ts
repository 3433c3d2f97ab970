import { symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { nodeOptions, root, startProgram } from '../../support/command-line.ts';
import { runCommand } from '../../support/run-command.ts';
import { useFolder } from '../../support/use.ts';
import { useWorld } from '../../support/world.ts';

/** Writes the URL of every module that is loaded to stderr. */
const traceModules = `data:text/javascript,${encodeURIComponent(`
  import { registerHooks } from 'node:module';
  registerHooks({ load: (url, context, next) => (process.stderr.write(url + '\\n'), next(url, context)) });
`)}`;

describe('program of the command line', () => {
  const world = useWorld();
  const folder = useFolder();
  before(async () => {
    await symlink(join(root, 'bin/backoffice'), join(folder, 'backoffice'));
  });

  function run(program: string, args: string[]) {
    const running = startProgram(program, args, world.environment);
    running.process.stdin.end();
    return running.ended;
  }

  it('--version names the build', async () => {
    const { code, stdout } = await runCommand(
      'scripts/backoffice.ts',
      ['--version', '--json'],
      world.environment,
    );
    expect(code).to.equal(0);
    expect(JSON.parse(stdout)).to.have.all.keys('build', 'tenant', 'control', 'node');
  });

  it('the help has each command in a group, on one line of at most 80 characters', async () => {
    const { code, stdout } = await runCommand(
      'scripts/backoffice.ts',
      ['--help'],
      world.environment,
    );
    expect(code).to.equal(0);
    const commands = stdout.slice(stdout.indexOf('Tenants:'), stdout.indexOf('Examples:'));
    expect(commands).to.match(/^People:\n {2}user .*\n {2}session /m);
    for (const line of commands.split('\n')) expect(line).to.match(/^$|^\w+:$|^ {2}\w.{0,77}$/);
  });

  it('help shows the help of the whole command whose words follow it, as --help behind them does', async () => {
    const program = join(root, 'bin/backoffice');
    const [asked, within, option] = await Promise.all([
      run(program, ['help', 'user', 'add']),
      run(program, ['user', 'help', 'add']),
      run(program, ['user', 'add', '--help']),
    ]);
    expect(asked).to.deep.include({ code: 0, stdout: option.stdout });
    expect(within).to.deep.include({ code: 0, stdout: option.stdout });
    expect(option.stdout).to.include('--password-stdin');
  });

  it('the help of a command that does not exist is wrong usage, which names the word', async () => {
    const program = join(root, 'bin/backoffice');
    const asked = [
      ['help', 'tenants'],
      ['tenants', '--help'],
      ['help', 'user', 'tenants'],
      ['user', 'help', 'tenants'],
      ['user', 'tenants', '-h'],
    ];

    const ended = await Promise.all(asked.map(args => run(program, args)));

    for (const [at, { code, stdout, stderr }] of ended.entries()) {
      expect(code, asked[at]?.join(' ')).to.equal(2);
      expect(stdout, asked[at]?.join(' ')).to.equal('');
      expect(stderr, asked[at]?.join(' ')).to.include("unknown command 'tenants'");
    }
  });

  it('--json and another format at once are wrong usage, in either order', async () => {
    const program = join(root, 'bin/backoffice');

    const [yaml, name] = await Promise.all([
      run(program, ['list', '--json', '-o', 'yaml']),
      run(program, ['list', '--output=name', '--json']),
    ]);

    for (const { code, stdout, stderr } of [yaml, name]) {
      expect(code).to.equal(2);
      expect(stdout).to.equal('');
      expect(JSON.parse(stderr).error.code).to.equal('usage');
    }
  });

  it('backoffice runs through a symbolic link from any folder, and ends without an error when its reader closes the pipe, also a command that repeats its output', async () => {
    const { stdout, stderr, code } = await run('bash', [
      '--norc',
      '-o',
      'pipefail',
      '-c',
      `cd ${folder} && ./backoffice list | true && ./backoffice processes --watch --json | head -n 1`,
    ]);
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    expect(JSON.parse(stdout)).to.be.an('array');
  });

  it('help loads no module of a command, and list loads no entity manager', async () => {
    const load = async (...args: string[]): Promise<string> => {
      const options = [
        '--import',
        traceModules,
        ...nodeOptions(),
        'scripts/backoffice.ts',
        ...args,
      ];

      return (await run(process.execPath, options)).stderr;
    };

    const [help, list] = await Promise.all([load('--help'), load('list')]);

    expect(help)
      .to.include('/catalogue.ts')
      .and.not.match(/\.command\.ts|\/perform\.ts|zod|node_modules\/pg\//);
    expect(list)
      .to.include('/tenant.command.ts')
      .and.not.match(/@mikro-orm|user\.command\.ts/);
  });
});
