import { expect } from 'chai';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { startProgram, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { makeNextBuild, type NextBuild } from '../support/next-build.ts';
import { postgresUrl } from '../support/test-server.ts';
import { controlSql, useWorld } from '../support/world.ts';

// `script` (util-linux) runs a program on a terminal of its own; its stdin is what a person
// types.
describe('drill: the command line on a terminal', () => {
  const world = useWorld();

  let next: NextBuild;
  before(async () => {
    next = await makeNextBuild();
  });
  after(() => next?.remove());

  /** @param script of another build */
  const onTerminal = (command: string, script = 'scripts/tenant.ts') =>
    startProgram('script', ['-qec', `"${process.execPath}" "${script}" ${command}`, '/dev/null'], {
      ...world.environment,
      TERM: 'xterm',
    });

  /** Runs a command of the next build, which has a migration that can be rolled back. */
  const onNext = (command: string) => onTerminal(command, next.file('scripts/tenant.ts'));

  async function rollBackAll(): Promise<void> {
    for (const slug of ['acme', 'globex']) {
      const { code, stdout } = await end(onNext(`rollback ${slug} --yes --despite-running`));
      expect(code, stdout).to.equal(0);
    }
  }

  function end({ process: child, ended }: ReturnType<typeof onTerminal>) {
    child.stdin.end();
    return ended;
  }

  it('migrate draws a progress bar; with --json it prints nothing but lines of JSON', async () => {
    const drawn = await end(onNext('migrate --all --despite-running'));
    expect(drawn.stdout).to.include('█');
    await rollBackAll();

    const { code, stdout } = await end(onNext('migrate --all --despite-running --json'));
    await rollBackAll();

    expect(code).to.equal(0);
    const lines = stdout.trim().split(/\r?\n/);
    expect(lines.map(line => JSON.parse(line).state)).to.deep.equal(['migrated', 'migrated']);
  });

  it('rollback asks before it cuts off a running process, and goes on only after a yes', async () => {
    const migrated = await end(onNext('migrate acme --despite-running'));
    expect(migrated.code, migrated.stdout).to.equal(0);
    await controlSql(
      world,
      `insert into processes (id, kind, host, pid, build, tenant_head, control_head, seen_at)
       values (gen_random_uuid(), 'service', 'elsewhere', 17, '0.0.9', '${next.head}', '${next.head}', now())`,
    );

    for (const [reply, code, text] of [
      ['no', 1, 'Nothing was changed.'],
      ['yes', 0, 'acme: '],
    ] as const) {
      // As late as a beat can be: it counts for a minute.
      await controlSql(
        world,
        `update processes set seen_at = now() + interval '1 minute' where host = 'elsewhere'`,
      );
      const rollingBack = onNext('rollback acme --yes');
      await eventually(() => expect(rollingBack.output.stdout).to.include('Type yes to go on: '));
      rollingBack.process.stdin.write(`${reply}\r`);
      const ended = await end(rollingBack);

      expect(ended.stdout)
        .to.include('1 running process would stop serving 1 tenant: ')
        .and.include(text);
      expect(ended.code).to.equal(code);
    }

    await controlSql(world, `delete from processes where host = 'elsewhere'`);
  });

  it('doctor --json draws no progress bar', async () => {
    const { stdout } = await end(onTerminal('doctor --json'));
    expect(JSON.parse(stdout)).to.have.property('findings');
  });

  it('server add prompts for the URL, and does not echo it', async () => {
    const adding = onTerminal('server add second');
    await eventually(() => adding.output.stdout.includes('URL of the server (not shown): '));
    adding.process.stdin.write(`${postgresUrl()}\r`);

    // The server of the control database has a name.
    await eventually(() => adding.output.stdout.includes('The URL leads to the server default'));

    const { code, stdout } = await end(adding);
    expect(code).to.equal(1);
    const { host, password } = new URL(postgresUrl());
    expect(stdout).to.not.include(host).and.not.include(password);
  });

  it('an empty answer and Ctrl-C change nothing', async () => {
    for (const [command, question, answer, text] of [
      ['suspend', 'Tenant (', '\r', "missing required argument 'slug'"],
      ['delete globex', 'Type its slug', '\x03', 'nothing was changed'],
    ] as const) {
      const asking = onTerminal(command);
      await eventually(() => asking.output.stdout.includes(question));
      asking.process.stdin.write(answer);
      const { code, stdout } = await asking.ended;

      expect(code, command).to.equal(2);
      expect(stdout).to.include(text);
    }

    const states = await controlSql(world, 'select distinct status from tenants');
    expect(states).to.deep.equal([{ status: 'active' }]);
  });

  it('Ctrl-C at the prompt of server add ends the command and changes nothing', async () => {
    const adding = onTerminal('server add third');
    await eventually(() => adding.output.stdout.includes('(not shown): '));
    adding.process.stdin.write('\x03');
    const { code, stdout } = await adding.ended;
    expect(code).to.equal(2);
    expect(stdout).to.include('Nothing was given: nothing was changed.');
  });

  it('Ctrl-C before the first tenant is migrated ends migrate at once with exit code 130', async () => {
    await withConnection(world.installation.controlUrl, async client => {
      await client.query('begin; lock table migration_runs in access exclusive mode');
      const migrate = startScript('scripts/tenant.ts', ['migrate', '--all'], world.environment);

      // The table has the same OID in the databases of all worlds.
      const waiting = `
        select 1 from pg_locks where relation = 'migration_runs'::regclass and not granted
           and database = (select oid from pg_database where datname = current_database())`;
      await eventually(async () => (await client.query(waiting)).rows.length > 0);

      migrate.process.kill('SIGINT');
      const { code, stdout, stderr } = await migrate.ended;
      expect({ code, stdout, stderr }).to.deep.equal({ code: 130, stdout: '', stderr: '' });

      await client.query('rollback'); // only now: the command has not waited for the lock
    });
  });
});
