import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { withConnection } from '../../../src/postgres/connection.ts';
import { root, type ScriptResult, startProgram, startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { createPlainServer, type PlainServer } from '../../support/plain-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';

interface Report {
  healthy: boolean;
  findings: { server: string; check: string; severity: string; problem: string; remedy: string }[];
}

/** What the shell lines of the page need: `npx backoffice` of this project, and a home folder. */
const prelude = `set -e
npx() { shift; '${root}bin/backoffice' "$@"; }
`;

/** The shell lines under *Start the service*, one text for each step. */
async function stepsOfPage(): Promise<string[]> {
  const page = await readFile(join(root, 'docs/operate/day-one.md'), 'utf8');
  const section = page.split('\n## Start the service\n')[1]?.split('\n## ')[0] ?? '';
  const steps = [...section.matchAll(/^ *```sh\n([\s\S]*?)^ *```$/gm)].map(match => match[1] ?? '');
  return steps.map(step => step.replace(/^ {3}/gm, ''));
}

describe('day one by the handbook', () => {
  let folder: string;
  const servers: PlainServer[] = [];
  /** A server with a login that is no superuser, on which the page was followed. */
  let host: PlainServer;
  let settings: Record<string, string>;
  let report: Report;

  before(async () => {
    folder = await makeServerFolder('dayone');
    host = await createServer('createdb createrole');
    ({ settings, report } = await follow(host.url('backoffice'), join(folder, 'host')));
  });
  after(async () => {
    for (const server of servers) await server.close();
    await rm(folder, { recursive: true, force: true });
  });

  async function createServer(attributes: string): Promise<PlainServer> {
    const server = await createPlainServer(attributes);
    servers.push(server);
    return server;
  }

  const shell = (text: string): Promise<ScriptResult> => {
    const running = startProgram('sh', ['-c', prelude + text], { HOME: folder });
    running.process.stdin.end();
    return running.ended;
  };

  /** Follows the page up to its end. @returns the environment of the commands, and the report of doctor as JSON */
  async function follow(url: string, home: string): Promise<{ settings: Record<string, string>; report: Report }> {
    const [makeKey = '', setVariables = '', createControl = '', start = '', ...rest] = await stepsOfPage();
    expect(start).to.equal('npm start\n');
    expect(rest.join('')).to.match(/^npx backoffice provision [\s\S]*npx backoffice doctor\n$/);
    const variables = setVariables
      .replace(/^export DATABASE_URL=.*$/m, `export DATABASE_URL='${url}'`)
      .replaceAll('$HOME', home);
    const made = await shell(makeKey.replaceAll('$HOME', home) + variables + createControl);
    expect(made.code, made.stderr).to.equal(0);
    const serviceUrl = /DATABASE_URL=(\S+)/.exec(made.stdout)?.[1] ?? '';
    const settings = { DATABASE_URL: url, MASTER_KEY_FILE: `${home}/backoffice/master-key` };
    const service = startScript('src/main.ts', [], {
      ...settings,
      DATABASE_URL: serviceUrl,
      PORT: '0',
      MANAGEMENT_PORT: '0',
      DATA_DIR: home,
    });
    try {
      await eventually(
        () => service.output.stdout.includes('"listening"') || service.process.exitCode !== null,
        60_000,
      );
      expect(service.process.exitCode, service.output.stderr).to.equal(null);
      const checked = await shell(variables + rest.join(''));
      expect(checked.code, checked.stdout + checked.stderr).to.equal(0);
      expect(checked.stdout).to.match(/Checked 1 tenant on 1 server: 1 open problem, 0 fixed\.\n$/);
    } finally {
      service.process.kill('SIGTERM');
      expect((await service.ended).code).to.equal(0);
    }
    return { settings, report: await doctor(settings) };
  }

  async function doctor(environment: Record<string, string>, exitCode = 0, ...args: string[]): Promise<Report> {
    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', ['doctor', '--json', ...args], environment);
    expect(code, stdout + stderr).to.equal(exitCode);
    return JSON.parse(stdout);
  }

  const namesOf = ({ findings }: Report) =>
    findings.map(({ server, severity, check }) => `${server}: ${severity} ${check}`).sort();

  it('day one on a plain server, with a login that is no superuser, ends with a doctor that exits with 0', async () => {
    expect(report.healthy).to.equal(true);
    expect(namesOf(report)).to.deep.equal(['default: warning default_access']);
    const [finding] = report.findings;
    expect(finding?.problem).to.equal(
      'every login of the server may connect to postgres and template1, as PostgreSQL grants by default',
    );
    // The login of the commands cannot revoke it, and the remedy says who can.
    const [, who, statement = ''] =
      /revoke it as its owner (\w+) or as a superuser: (revoke .*;)$/.exec(finding?.remedy ?? '') ?? [];
    expect(who).to.equal((await host.sql<{ name: string }>('select current_user as name'))[0]?.name);
    await host.sql(statement);
    expect((await doctor(settings)).findings).to.deep.equal([]);
  });

  it('with a login that is no superuser, each remedy can be run by that login, or names who must run it', async () => {
    const [tenant] = await host.sql<{ name: string }>(
      `select datname as name from pg_database where datname like 'backoffice_tenant_%'`,
    );
    const name = tenant?.name ?? '';
    const superuser = (await host.sql<{ name: string }>('select current_user as name'))[0]?.name;
    await host.sql('create database reports');
    await host.sql(`alter role "${name}" superuser; grant pg_monitor to "${name}"; alter database "${name}" owner to ${superuser};
                    grant temporary on database "${name}" to public`);
    await withConnection(host.superuserUrl(name), client => client.query(`create schema mine authorization "${name}"`));
    const first = await doctor(settings, 1, '--fix');
    const largeObjects = first.findings.findIndex(({ problem }) =>
      problem.startsWith('PUBLIC may store large objects'),
    );
    const [{ remedy: revoke = '' } = {}] = first.findings.splice(largeObjects, 1);
    expect(revoke).to.match(
      new RegExp(`^Let a superuser of the server run in database ${name}: revoke execute on function .* from public;$`),
    );
    const errors = first.findings.filter(({ severity }) => severity === 'error');
    const remedies = errors.map(({ check, remedy }) => `${check}: ${remedy}`);
    expect(remedies, JSON.stringify(first.findings, null, 1)).to.have.members([
      `excess_rights: Let a superuser of the server run: alter role "${name}" nosuperuser;`,
      `excess_rights: Let a superuser of the server run: revoke "pg_monitor" from "${name}";`,
      `excess_rights: Give them another owner, in that database: grant "${name}" to current_user; ` +
        `reassign owned by "${name}" to current_user; revoke "${name}" from current_user;`,
      `public_access: Let ${superuser}, its owner, or a superuser run: revoke all on database "${name}" from public;`,
      `public_access: If nothing else needs it, revoke it as its owner ${superuser} or as a superuser: ` +
        'revoke all on database "reports" from public;',
    ]);
    const statement = (text: string): string => text.replace(/^.*?: (?=revoke|alter|grant)/, '');
    for (const text of errors.map(({ remedy }) => remedy).filter(remedy => /superuser/.test(remedy)))
      await host.sql(statement(text));
    await host.sql(`alter database "${name}" owner to operator`);
    const [mine] = errors.filter(({ remedy }) => remedy.startsWith('Give them'));
    await withConnection(host.url(name), client => client.query(statement(mine?.remedy ?? '')));
    await doctor(settings, 0, '--full');
  });

  it('the pool needs no superuser, only the rights createdb and createrole', async () => {
    const run = async (...args: string[]) => {
      const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', args, settings);
      expect({ code, stderr }, stdout).to.deep.equal({ code: 0, stderr: '' });
      return stdout;
    };
    await run('pool', 'fill', '--size', '2');
    await run('provision', 'acme', '--name', 'Acme', '--admin-email', 'a@acme.test');
    expect(JSON.parse(await run('pool', 'list', '--json'))).to.have.length(1);
    await withConnection(host.superuserUrl('backoffice'), client =>
      client.query(`update tenant_databases set digest = 'another'`),
    );
    const [filled] = JSON.parse(await run('pool', 'fill', '--size', '1', '--json'));
    expect(filled).to.include({ ready: 1, made: 1, dropped: 1, error: null });
    await doctor(settings);
  });

  it('a second server, whose login is a superuser, is checked too, and that login can run the remedy itself', async () => {
    const second = await createServer('superuser');
    // POSTGRES_DB of the image makes a database as its own login.
    await second.sql('create database backoffice owner operator');
    const url = `${second.url('backoffice')}\n`;
    const added = await runCommand('scripts/tenant.ts', ['server', 'add', 'second'], settings, url);
    expect(added.code, added.stderr).to.equal(0);
    const withSecond = await doctor(settings);
    expect(namesOf(withSecond)).to.deep.equal(['second: warning default_access']);
    expect(withSecond.findings[0]?.remedy).to.match(
      /revoke it: revoke all on database "backoffice", "postgres", "template1" from public;$/,
    );
  });
});
