import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { root, type ScriptResult, startProgram, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { createPlainServer, type PlainServer } from '../support/plain-server.ts';
import { runCommand } from '../support/run-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';

interface Report {
  healthy: boolean;
  findings: { server: string; check: string; severity: string; problem: string; remedy: string }[];
}

/** The need of the shell lines of the page: the folder of the project. */
const prelude = `set -e
cd '${root}'
`;

/** The shell lines under *Start the service*, one text for each step. */
async function stepsOfPage(): Promise<string[]> {
  const page = await readFile(join(root, 'docs/operate/day-one.md'), 'utf8');
  const section = page.split('\n## Start the service\n')[1]?.split('\n## ')[0] ?? '';
  const steps = [...section.matchAll(/^ *```sh\n([\s\S]*?)^ *```$/gm)].map(match => match[1] ?? '');
  return steps.map(step => step.replace(/^ {3}/gm, ''));
}

describe('drill: day one by the handbook', () => {
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

  /**
   * Follows the page up to its end.
   * @returns the environment of the commands, and the report of doctor as JSON
   */
  async function follow(
    url: string,
    home: string,
  ): Promise<{ settings: Record<string, string>; report: Report }> {
    const [makeKey = '', setVariables = '', createControl = '', start = '', ...rest] =
      await stepsOfPage();
    expect(start).to.equal('npm start\n');
    expect(rest.join('')).to.match(/^bin\/backoffice provision [\s\S]*bin\/backoffice doctor\n$/);

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
      expect(checked.stdout).to.match(/Checked 1 tenant on 1 server: nothing is wrong\.\n$/);
    } finally {
      service.process.kill('SIGTERM');
      expect((await service.ended).code).to.equal(0);
    }

    return { settings, report: await doctor(settings) };
  }

  async function doctor(
    environment: Record<string, string>,
    exitCode = 0,
    ...args: string[]
  ): Promise<Report> {
    const { code, stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json', ...args],
      environment,
    );
    expect(code, stdout + stderr).to.equal(exitCode);
    return JSON.parse(stdout);
  }

  it('day one on a plain server, with a login that is no superuser, ends with a doctor that exits with 0', async () => {
    expect(report.healthy).to.equal(true);
    expect(report.findings).to.deep.equal([]);
  });

  it('provision and purge need no superuser, only the rights createdb and createrole', async () => {
    const run = async (...args: string[]) => {
      const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', args, settings);
      expect({ code, stderr }, stdout).to.deep.equal({ code: 0, stderr: '' });
    };

    for (const slug of ['acme', 'globex']) {
      await run('provision', slug, '--name', slug, '--admin-email', `a@${slug}.test`);
    }
    await run('delete', 'globex', '--yes');
    await run('purge', 'globex', '--yes');

    await doctor(settings);
  });

  it('a second server, whose login is a superuser, is checked too, and nothing is wrong there', async () => {
    const second = await createServer('superuser');
    // POSTGRES_DB of the image makes a database as its own login.
    await second.sql('create database backoffice owner operator');
    const url = `${second.url('backoffice')}\n`;
    const add = ['server', 'add', 'second', '--disk-gb', '200'];
    const added = await runCommand('scripts/tenant.ts', add, settings, url);
    expect(added.code, added.stderr).to.equal(0);
    expect((await doctor(settings)).findings).to.deep.equal([]);
  });
});
