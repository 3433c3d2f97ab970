import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { copyClone } from '../deploy/engines/clone.ts';
import { skipIfLeftOut, Terminal } from '../deploy/engines/machine.ts';
import { Northwind, type Send } from '../deploy/engines/northwind.ts';
import { PrintedLines, readPage } from '../deploy/engines/printed-lines.ts';
import { eventually } from '../support/eventually.ts';

const [folder, newer] = ['/opt/backoffice-0.2.0', '/opt/backoffice-0.3.0'];
const home = '/root/administrator';
const secrets = [
  'master-key',
  'master-key-previous',
  'operator-database-url',
  'service-database-url',
];

/** Removes an installation from this machine, as far as it is there. */
const removal = `
systemctl disable --now 'backoffice*' 2> /dev/null
systemctl stop 'backoffice*'
rm -rf /etc/systemd/system/backoffice* /etc/backoffice /opt/backoffice* ${home} /usr/local/bin/backoffice
rm -rf /var/lib/backoffice* /var/lib/private/backoffice* /var/cache/backoffice*
systemctl daemon-reload
systemctl restart postgresql
for database in $(sudo -u postgres psql -XAtc "select datname from pg_database where datname like 'backoffice%'"); do
  sudo -u postgres psql -qc "alter database $database is_template false" -c "drop database $database with (force)"
done
for role in $(sudo -u postgres psql -XAtc "select rolname from pg_roles where rolname like 'backoffice%' order by rolname desc"); do
  sudo -u postgres psql -qc "drop owned by $role" -c "drop role $role"
done
userdel backoffice; userdel backoffice-operator
`;

/**
 * The lines of "systemd", as an administrator types them on a host with a PostgreSQL server.
 */
describe('drill: the lines for systemd on a real host', function () {
  this.timeout(900_000);
  this.bail(true);

  let lines: PrintedLines;
  let terminal: Terminal;
  let northwind: Northwind;
  let password: string;

  before(async function () {
    skipIfLeftOut(this, ['systemctl', 'list-units']);

    lines = new PrintedLines(await readPage('deploy'), 'systemd');
    await new Terminal('/').try(`set +e\n${removal}`);
    await copyClone(folder);
    terminal = new Terminal(
      folder,
      `umask 077\nexport EDITOR=true HOME=${home}\nmkdir -p ${home}\n`,
    );
    await terminal.type('chmod -R go= .');
    northwind = new Northwind(send);
  });

  /** Sends a request as a balancer on this machine does, with an address for each client. */
  const send: Send = async (client, { method, path, headers, text }) => {
    const from = { 'X-Forwarded-For': `192.0.2.${1 + (client % 200)}` };
    const response = await fetch(`http://127.0.0.1:3000${path}`, {
      method,
      headers: { ...headers, ...from },
      ...(text !== undefined && { body: text }),
    });

    return { status: response.status, body: await response.json() };
  };

  const isServed = (): Promise<boolean> =>
    send(0, { method: 'GET', path: '/api/v1/none', headers: {}, text: undefined }).then(
      ({ status }) => status > 0,
      () => false,
    );

  const secretsOf = (): Promise<string[]> =>
    Promise.all(secrets.map(name => readFile(`/etc/backoffice/${name}`, 'utf8')));

  const mainProcess = async (): Promise<string> =>
    (await terminal.type('systemctl show --property=MainPID --value backoffice')).trim();

  it('the lines for systemd, typed once with umask 077, start a service that serves a tenant', async () => {
    for (const text of ['backoffice-0.2.0', 'useradd', 'sudoedit', 'control service-login']) {
      await terminal.type(lines.block(text));
    }
    const printed = await terminal.type(lines.block('enable --now backoffice.service'));
    password = /^password +(\S+)$/m.exec(printed)?.[1] ?? '';

    await northwind.login(password);
    await northwind.add('first');
    expect(await northwind.titles()).to.include('first');
    expect(printed).to.match(/^Checked 1 tenant on 1 server: /m);
  });

  it('the service has sessions of a login of its own, and none of the operator', async () => {
    const logins = await terminal.type(`
      sudo -u postgres psql -XAt \\
        -c "select distinct usename from pg_stat_activity where application_name like 'backoffice-%'"
    `);

    expect(logins.split('\n'))
      .to.include('backoffice_service')
      .and.not.include('backoffice_operator');
  });

  it('no login but root can read a secret, and no other login has the service', async () => {
    for (const login of ['backoffice', 'backoffice-operator', 'postgres']) {
      const { code } = await terminal.try(`sudo -u ${login} cat /etc/backoffice/master-key`);
      expect(code, login).to.equal(1);
    }
  });

  it('the lines for systemd, typed a second time, replace no secret and no setting, and the tenant is served', async () => {
    await terminal.type('echo CORS_ORIGINS=https://app.example.com >> /etc/backoffice/service.env');
    const before = await secretsOf();

    const users = await terminal.try(lines.block('useradd').replace(/^sudo useradd .*$/gm, ''));
    expect(users.code).to.not.equal(0);
    expect(users.stderr).to.include('already exists');
    await terminal.type(lines.block('sudoedit'));
    const login = await terminal.try(lines.block('control service-login'));
    expect(login.code).to.not.equal(0);
    expect(login.stderr + login.stdout).to.include('--yes');

    expect(await secretsOf()).to.deep.equal(before);
    expect(await readFile('/etc/backoffice/service.env', 'utf8')).to.include('CORS_ORIGINS=');
    await terminal.type('systemctl restart backoffice');
    await eventually(isServed);
    expect(await northwind.titles()).to.include('first');
  });

  it('the lines of backups archive the tenant, and each unit of a timer succeeds', async () => {
    await terminal.type(lines.block('backup init'));

    for (const unit of ['backoffice-backup', 'backoffice-databases']) {
      await terminal.type(`systemctl start ${unit}.service`);
    }
    const timers = await terminal.type('systemctl list-timers --all --no-pager');
    expect(timers).to.include('backoffice-backup.timer').and.include('backoffice-databases.timer');
  });

  it('where the identity is, the units of the recovery host prove the archive and apply the retention', async () => {
    await terminal.type(
      'install -m 600 ~/identity.txt deploy/systemd/recovery.env /etc/backoffice/',
    );

    for (const unit of ['backoffice-drill', 'backoffice-retention']) {
      await terminal.type(`systemctl start ${unit}.service`);
    }
    const log = await terminal.type('journalctl --unit backoffice-drill --output cat --no-pager');
    expect(log).to.match(/^northwind: proved, \d+ rows restored and compared/m);

    await terminal.type('rm /etc/backoffice/identity.txt');
    const { code } = await terminal.try('systemctl start backoffice-drill.service');
    expect(code, 'a host without the identity').to.not.equal(0);
  });

  it('the compiled code is stored for the service and for the commands, and a start uses it', async () => {
    const files = await terminal.type(
      'find /var/cache/backoffice /var/cache/backoffice-operator -type f',
    );

    expect(files).to.match(/^\/var\/cache\/backoffice\/\S+$/m);
    expect(files).to.match(/^\/var\/cache\/backoffice-operator\/\S+$/m);
  });

  it('a service of one process refuses a reload, and goes on', async () => {
    const before = await mainProcess();

    const { code } = await terminal.try('systemctl reload backoffice');

    expect(code).to.equal(1);
    expect(await mainProcess()).to.equal(before);
    expect(await northwind.titles()).to.include('first');
  });

  it('a service that is killed under load loses no acknowledged write, and starts again', async () => {
    const kill = async (): Promise<void> => {
      const before = await mainProcess();
      await terminal.type(`kill -9 ${before}`);
      await eventually(async () => (await mainProcess()) !== before && (await isServed()));
    };

    const { acknowledged } = await northwind.load('killed', kill());

    expect(await northwind.titles()).to.include.members(acknowledged);
  });

  it('with a Redis, a reload under load replaces every worker before it returns, and refuses no request', async function () {
    if ((await terminal.try('redis-cli ping')).code !== 0) {
      console.log('      no Redis responds: the lines of the Redis are left out');
      this.skip();
    }
    await terminal.type(lines.block('redis-url'));
    await eventually(isServed);
    const workers = async (): Promise<string[]> => {
      const text = await terminal.type(`cat /proc/${await mainProcess()}/task/*/children`);
      return text.trim().split(/\s+/);
    };
    const before = await eventually(async () => {
      const all = await workers();
      return all.length > 1 && (await isServed()) && all;
    });

    const { failed } = await northwind.load(
      'reloaded',
      terminal.type('systemctl reload backoffice'),
    );

    expect((await workers()).filter(worker => before.includes(worker))).to.deep.equal([]);
    expect(failed).to.deep.equal([]);
  });

  it('the lines of an upgrade, typed under load, run the new build, and lose no acknowledged write', async () => {
    await copyClone(newer);
    await terminal.type(`chmod -R go= ${newer}`);
    const upgrade = async (): Promise<void> => {
      await terminal.type(lines.block('backoffice-0.3.0'));
      await eventually(isServed);
    };

    const { acknowledged, failed } = await northwind.load('upgraded', upgrade());

    expect(await northwind.titles()).to.include.members(acknowledged);
    expect(failed.filter(each => Number(each) >= 500)).to.deep.equal([]);
    const running = await terminal.type(`readlink /proc/${await mainProcess()}/cwd`);
    expect(running.trim()).to.equal(newer);
  });
});
