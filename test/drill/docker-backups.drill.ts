import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { copyClone, ownHome } from '../deploy/engines/clone.ts';
import { skipIfLeftOut, Terminal } from '../deploy/engines/machine.ts';
import { Northwind, sendTo } from '../deploy/engines/northwind.ts';
import { PrintedLines, readPage } from '../deploy/engines/printed-lines.ts';
import { eventually } from '../support/eventually.ts';

const compose = 'docker compose -f deploy/compose.yaml';
/** The line of cron for backups, as it runs in the folder of the clone. */
const timer = `${compose} run --rm -T command scripts/backoffice.ts backup run --all`;

/**
 * Backups of "One machine, with Compose": archives are made by the containers of the kit, opened
 * where the identity is, and bring back the tenants after both servers are lost with their
 * volumes.
 */
describe('drill: backups with Compose in a real Docker', function () {
  this.timeout(900_000);
  this.bail(true);

  let lines: PrintedLines;
  let clone: string;
  let terminal: Terminal;
  let password: string;
  let started = false;

  before(async function () {
    skipIfLeftOut(this, ['docker', 'version']);

    lines = new PrintedLines(await readPage('deploy'), 'One machine, with Compose');
    clone = await mkdtemp(join(tmpdir(), 'backoffice-clone-'));
    await copyClone(clone);
    terminal = new Terminal(clone, `${ownHome(clone)}${lines.block('backoffice() {')}`);
    started = true;

    await terminal.type('chmod -R go= .');
    await terminal.type(lines.block('backoffice:0.2.0'));
    await terminal.type(lines.block('openssl rand'));
    await terminal.type(lines.block('migrate-control\nurl='));
    // No process of the service has a part in it.
    await terminal.type(`${compose} up -d --wait postgres-1 postgres-2`);
    const [, add = ''] = /up -d\n([\s\S]*)/.exec(lines.block('server add second')) ?? [];
    const printed = await terminal.type(add);
    password = /^password +(\S+)$/m.exec(printed)?.[1] ?? '';
  });

  after(async () => {
    if (!started) return;

    await terminal.try(`${compose} --profile commands down --volumes --timeout 1`);
    await rm(clone, { recursive: true, force: true });
  });

  /**
   * Types a command on the recovery host: in a container that gets the identity, which its user
   * alone can read.
   */
  const recover = (args: string) =>
    terminal.try(
      `install -o 10001 -m 400 $HOME/identity.txt $HOME/identity
       ${compose} run --rm -T -v $HOME/identity:/identity:ro -e BACKUP_IDENTITY_FILE=/identity \\
         command scripts/backoffice.ts ${args}`,
    );
  const query = (text: string, database = 'backoffice') =>
    terminal.type(
      `${compose} exec -T postgres-1 psql -XAt -U operator -d ${database} -c "${text}"`,
    );
  const locksOf = async (table: string, database: string, which: string): Promise<number> =>
    Number(
      await query(
        `select count(*) from pg_locks where relation = '${table}'::regclass and ${which}`,
        database,
      ),
    );
  /** Locks a table for everybody else, readers too, until it is released. */
  const holdTable = async (table: string, database: string) => {
    const held = query(
      `lock table ${table} in access exclusive mode; select pg_sleep(600) as hold`,
      database,
    ).catch(() => 'ended');
    await eventually(async () => (await locksOf(table, database, 'granted')) === 1, 60_000);

    return {
      release: async (): Promise<void> => {
        await query(
          `select pg_terminate_backend(pid) from pg_stat_activity
           where query like 'lock table%' and pid <> pg_backend_pid()`,
        );
        await held;
      },
    };
  };
  const databaseOf = async (slug: string): Promise<string> =>
    JSON.parse(await terminal.type(`backoffice show ${slug} --json`)).database;

  it('the lines of backups make an identity, and archive the tenant for its recipient', async () => {
    await query(
      `insert into currencies (code, name) values ('NOK', 'Krone')`,
      await databaseOf('northwind'),
    );

    const printed = await terminal.type(lines.block('backoffice backup init'));

    expect(printed).to.match(/^northwind: archived \d+ rows/m);
  });

  it('the volume of archives can be read by no other login of the machine, and the timer opens none of them', async () => {
    const others = await terminal.type(`
      folder=$(docker volume inspect --format '{{.Mountpoint}}' deploy_backup)
      find $folder -mindepth 1 -perm /077
    `);
    expect(others).to.equal('');

    const { code, stderr } = await terminal.try('backoffice backup drill');
    expect(code).to.equal(1);
    expect(stderr).to.include('BACKUP_IDENTITY_FILE is not set, so this host opens no archive');
  });

  it('where the identity is, a drill restores the archive', async () => {
    const drilled = await recover('backup drill');
    expect(drilled.code, drilled.stderr).to.equal(0);
    expect(drilled.stdout).to.match(/^northwind: proved, \d+ rows restored and compared/m);
  });

  it('a container of the timer that is killed while it archives leaves nothing that the next one does not complete', async () => {
    const database = await databaseOf('northwind');
    await query(`insert into currencies (code, name) values ('SEK', 'Krona')`, database);
    const lock = await holdTable('currencies', database);
    const killed = terminal.try(timer.replace('run --rm', 'run --rm --name killed-backup'));
    await eventually(
      async () => (await locksOf('currencies', database, 'not granted')) === 1,
      120_000,
    );

    await terminal.type('docker kill killed-backup');
    await killed;
    await lock.release();
    const { code, stdout, stderr } = await terminal.try(timer);

    expect(code, stdout + stderr).to.equal(0);
    const drilled = await recover('backup drill');
    expect(drilled.code, drilled.stdout + drilled.stderr).to.equal(0);
  });

  it('after both servers are lost with their volumes, the archives and the master key bring the tenant back', async () => {
    await terminal.type(`
      ${compose} --profile commands down --timeout 1
      docker volume rm deploy_postgres-1 deploy_postgres-2
      ${compose} up -d --wait postgres-1 postgres-2
    `);

    const { code, stdout, stderr } = await recover('control restore --all');

    expect(code, stdout + stderr).to.equal(0);
    expect(
      await query('select code from currencies order by 1', await databaseOf('northwind')),
    ).to.include('NOK\nSEK');
    const again = await terminal.try(timer);
    expect(again.code, again.stderr).to.equal(0);
  });

  it('the service gets a login of its own there, and the administrator logs in with the password of before', async () => {
    const [login = ''] = /url=[\s\S]*/.exec(lines.block('migrate-control\nurl=')) ?? [];
    await terminal.type(login);
    await terminal.type(`${compose} up -d --no-deps --wait redis service-1`);
    const address = await terminal.type(
      `docker inspect -f '{{.NetworkSettings.Networks.deploy_frontend.IPAddress}}' deploy-service-1-1`,
    );
    const northwind = new Northwind(sendTo(`http://${address.trim()}:3000`));

    await northwind.login(password);

    await northwind.add('after the loss');
    expect(await northwind.titles()).to.include('after the loss');
  });
});
