import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { Clients } from '../deploy/engines/clients.ts';
import { copyClone, ownHome } from '../deploy/engines/clone.ts';
import { skipIfLeftOut, Terminal } from '../deploy/engines/machine.ts';
import { Northwind } from '../deploy/engines/northwind.ts';
import { PrintedLines, readPage } from '../deploy/engines/printed-lines.ts';
import { eventually } from '../support/eventually.ts';

const compose = 'docker compose -f deploy/compose.yaml';

/**
 * The command `docker logs -f` of somebody who presses Ctrl-C when it has printed a URL: this
 * shell goes on then, or when the container has ended.
 */
const watched = `
docker() {
  if [ "$1 $2" = 'logs -f' ]; then
    sed -u '/^postgresql:/q' < <(command docker "$@" 2>&1)
  else
    command docker "$@"
  fi
}
`;

/**
 * The lines of "One machine, with Compose", as somebody types them in a clone that only its
 * owner may read.
 */
describe('drill: the lines for Compose in a real Docker', function () {
  this.timeout(900_000);
  this.bail(true);

  let lines: PrintedLines;
  let clone: string;
  let terminal: Terminal;
  let clients: Clients;
  let northwind: Northwind;
  let password: string;
  let started = false;

  before(async function () {
    skipIfLeftOut(this, ['docker', 'version']);

    lines = new PrintedLines(await readPage('deploy'), 'One machine, with Compose');
    clone = await mkdtemp(join(tmpdir(), 'backoffice-clone-'));
    await copyClone(clone);
    terminal = new Terminal(clone, `${ownHome(clone)}${watched}`);
    await allowFewFiles();
    await terminal.type('chmod -R go= .');
    started = true;
  });

  after(async () => {
    if (!started) return;

    clients?.close();
    await terminal.try(`${compose} --profile commands down --volumes --timeout 1`);
    await rm(clone, { recursive: true, force: true });
  });

  /**
   * Gives HAProxy fewer connections, and so fewer open files, on a machine that cannot have so
   * many.
   */
  async function allowFewFiles(): Promise<void> {
    const most = await terminal.type('ulimit -Hn');
    if (most.trim() === 'unlimited' || Number(most) >= 65_536) return;

    console.log(`      this machine has ${most.trim()} open files: HAProxy gets 4,000 connections`);
    await edit(join(clone, 'deploy/compose.yaml'), /nofile: 65536/, 'nofile: 10000');
    await edit(join(clone, 'deploy/haproxy/haproxy.cfg'), /maxconn 20000/, 'maxconn 4000');
  }

  const secretsOf = (names: readonly string[]): Promise<string[]> =>
    Promise.all(names.map(name => readFile(join(clone, 'deploy/secrets', name), 'utf8')));

  it('the lines for Compose, typed once with umask 077, start an installation that serves a tenant through HAProxy', async () => {
    await terminal.type(lines.block('backoffice:0.2.0'));
    await terminal.type(lines.block('openssl rand'));
    terminal = terminal.with(lines.block('backoffice() {'));
    await terminal.type(lines.block('migrate-control\nurl='));
    const printed = await terminal.type(lines.block('server add second'));
    password = /^password +(\S+)$/m.exec(printed)?.[1] ?? '';

    clients = new Clients(
      '172.30.0.10',
      Array.from({ length: 40 }, (_, number) => `172.30.0.${100 + number}`),
    );
    northwind = new Northwind(clients.send);
    await northwind.login(password);
    await northwind.add('first');
    expect(await northwind.titles()).to.include('first');
    expect(printed).to.match(/^Checked 1 tenant on 2 servers: /m);
  });

  it('the service has sessions of a login of its own, and none of the operator', async () => {
    const logins = await terminal.type(`
      ${compose} exec -T postgres-1 psql -XAt -U operator -d backoffice \\
        -c "select distinct usename from pg_stat_activity where application_name like 'backoffice-%'"
    `);

    expect(logins.split('\n')).to.include('backoffice_service').and.not.include('operator');
  });

  it('the image that is built for a registry says of which commit it is', async () => {
    const image = new PrintedLines(await readPage('deploy'), 'The image').block('docker push');
    await terminal.type(
      'git init -q . && git -c user.name=n -c user.email=n@example.com commit -q --allow-empty -m clone',
    );

    await terminal.type(image.slice(0, image.indexOf('npm run -s sbom')));

    const labels = await terminal.type(
      `docker image inspect --format '{{json .Config.Labels}}' registry.example.com/backoffice:0.2.0`,
    );
    expect(JSON.parse(labels)).to.include({
      'org.opencontainers.image.version': '0.2.0',
      'org.opencontainers.image.revision': (await terminal.type('git rev-parse HEAD')).trim(),
      'org.opencontainers.image.licenses': 'MIT',
    });
  });

  it('on a terminal, a command has the terminal of the shell', async () => {
    const printed = await terminal.type(
      `export -f backoffice; script -qec 'bash -c "backoffice list"' /dev/null`,
    );

    expect(printed).to.include('northwind');
  });

  it('no secret can be read by another login of the machine, whatever its umask was', async () => {
    const folder = await stat(join(clone, 'deploy/secrets'));

    expect(folder.mode & 0o077).to.equal(0);
  });

  it('every container runs, is healthy where it has a check, and keeps running', async () => {
    await eventually(async () => {
      const text = await terminal.type(
        `${compose} ps --all --format '{{.Service}} {{.State}} {{.Health}}'`,
      );
      const waiting = text
        .split('\n')
        .filter(line => /restarting|starting|unhealthy|created/.test(line));
      return waiting.length === 0;
    }, 120_000);

    const text = await terminal.type(
      `${compose} ps --all --format '{{.Service}} {{.State}} {{.ExitCode}}'`,
    );
    const ended = text
      .split('\n')
      .filter(line => line && !/ running 0$|^migrate-\w+ exited 0$/.test(line));
    expect(ended).to.deep.equal([]);
  });

  it('Prometheus reads both processes, and Grafana its files and its password', async () => {
    const read = (path: string) =>
      fetch(`http://127.0.0.1:9090/api/v1/query?query=${path}`).then(each => each.json());

    const up = await eventually(async () => {
      const { data } = (await read('up')) as { data: { result: { value: [number, string] }[] } };
      const values = data.result.map(({ value }) => value[1]);
      return values.length >= 3 && !values.includes('0') && data.result;
    }, 60_000);
    expect(JSON.stringify(up)).to.include('service-1:3001').and.include('service-2:3001');
    const grafana = await terminal.type(`${compose} logs --no-log-prefix grafana 2>&1`);
    expect(grafana).to.not.match(/EACCES|ENOENT|permission denied/i);
  });

  it('the lines for Compose, typed a second time, stop or change nothing: no secret is replaced, and the tenant is served', async () => {
    const names = [
      'master-key',
      'postgres-password',
      'tls-key',
      'operator-database-url',
      'service-database-url',
    ];
    const before = await secretsOf(names);

    const secrets = await terminal.try(lines.block('openssl rand'));
    expect(secrets.code).to.not.equal(0);
    expect(secrets.stderr).to.match(/exist/i);
    const login = await terminal.try(lines.block('migrate-control\nurl='));
    expect(login.code).to.not.equal(0);
    expect(login.stderr).to.include('--yes');
    await terminal.type(`${compose} up -d`);
    const again = await terminal.try(lines.block('server add second'));
    expect(again.stderr).to.match(/exists/);

    expect(await secretsOf(names)).to.deep.equal(before);
    expect(await northwind.titles()).to.include('first');
  });

  it('the lines of backups make an identity, and archive the tenant for its recipient', async () => {
    const printed = await terminal.type(lines.block('backoffice backup init'));

    expect(printed).to.match(/^northwind: archived \d+ rows/m);
  });

  it('a container that is stopped while it still starts ends at once, and not by a kill after its time', async () => {
    await terminal.type(`${compose} run -d --no-deps --name starting service-1`);

    await terminal.type('docker stop starting');

    const { stdout } = await terminal.try(
      `docker inspect -f '{{.State.ExitCode}}' starting; docker rm starting`,
    );
    expect(Number(stdout.split('\n')[0])).to.be.oneOf([0, 143]);
  });

  it('each line of cron succeeds with the environment of cron, and prints nothing that would be mailed', async () => {
    await terminal.type(lines.block('/etc/cron.d/backoffice'));
    const table = await readFile('/etc/cron.d/backoffice', 'utf8');
    const commands = [...table.matchAll(/^(?:\S+ ){5}root (.*)$/gm)].map(
      ([, command = '']) => command,
    );
    expect(commands).to.have.length(3);

    for (const command of commands) {
      const { code, stdout } = await terminal.try(
        `env -i HOME=/root PATH=/usr/bin:/bin sh -c '${command}'`,
      );
      expect(code, command).to.equal(0);
      expect(stdout).to.equal('');
    }
  });

  it('the copy of the volume of archives has the target', async () => {
    await terminal.type('mkdir elsewhere');

    await terminal.type(lines.block('rsync').replace('backup@backup.example.com:', 'elsewhere/'));

    const files = await terminal.type('find elsewhere -type f');
    expect(files).to.include('backoffice-backup/backup-target.txt');
  });

  it('the path of TLS, taken as the page says, serves the API on port 443 with the given certificate', async () => {
    const uncomment = (file: string, of: RegExp): Promise<void> =>
      edit(join(clone, 'deploy', file), of, '$1$2');
    await uncomment('haproxy/haproxy.cfg', /^( +)# (bind :8443 .*)$/gm);
    await uncomment('compose.yaml', /^( +)# (- .*(?:8443|haproxy\.pem).*)$/gm);
    await terminal.type(`
      openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \\
        -addext subjectAltName=DNS:localhost -keyout key -out certificate 2> /dev/null
      cat certificate key > haproxy.pem
    `);
    await terminal.type(lines.block('haproxy.pem'));

    const url = 'https://localhost/api/v1/auth/login';
    const { stdout } = await terminal.try(`
      curl -sS --retry 20 --retry-all-errors --retry-delay 1 --cacert certificate -o /dev/null -w '%{http_version} %{http_code}' ${url}
    `);
    expect(stdout).to.match(/^2 4\d\d$/);
    await northwind.login(password);
    expect(await northwind.titles()).to.include('first');
  });

  it('a process that is killed under load loses no acknowledged write, and starts again', async () => {
    await northwind.login(password);
    const stateOf = async (
      name: string,
    ): Promise<{ Pid: number; StartedAt: string; Health: { Status: string } }> =>
      JSON.parse(await terminal.type(`docker inspect -f '{{json .State}}' deploy-${name}-1`));
    const kill = async (): Promise<void> => {
      for (const name of ['service-1', 'service-2']) {
        const before = await stateOf(name);
        await terminal.type(`kill -9 ${before.Pid}`);
        // `up --wait` would give up: a container is unhealthy from its end to its next start.
        await eventually(async () => {
          const { StartedAt, Health } = await stateOf(name);
          return StartedAt !== before.StartedAt && Health.Status === 'healthy';
        }, 180_000);
      }
    };

    const { acknowledged, failed } = await northwind.load('killed', kill());

    expect(await northwind.titles()).to.include.members(acknowledged);
    expect(acknowledged).to.have.length.greaterThan(10);
    expect(failed.length, 'requests that were under way').to.be.at.most(2 * 10);
  });

  it('after a cut of the power, under load, everything starts by itself, and has each acknowledged write', async () => {
    const cut = async (): Promise<void> => {
      await northwind.add('before the cut');
      await terminal.type(
        `kill -9 $(docker inspect -f '{{.State.Pid}}' $(${compose} ps --quiet --status running))`,
      );
      await eventually(async () => (await northwind.titles()).includes('before the cut'), 180_000);
    };

    const { acknowledged } = await northwind.load('power', cut());

    expect(await northwind.titles()).to.include.members(acknowledged);
  });

  it('a process that is stopped and started under load refuses no request', async () => {
    const drain = async (): Promise<void> => {
      for (const name of ['service-1', 'service-2']) {
        await terminal.type(`${compose} stop ${name}`);
        await terminal.type(`${compose} up -d --no-deps --wait ${name}`);
      }
    };

    const { acknowledged, failed } = await northwind.load('drained', drain());

    expect(failed).to.deep.equal([]);
    expect(await northwind.titles()).to.include.members(acknowledged);
  });

  it('the lines of an upgrade, typed under load, replace both processes and refuse no request', async () => {
    await edit(join(clone, 'docs/guide.md'), /$/, '\nA build that is newer.\n');
    await northwind.login(password);

    const { acknowledged, failed } = await northwind.load(
      'upgraded',
      terminal.type(lines.block('migrate-tenants')),
    );

    expect(failed).to.deep.equal([]);
    expect(await northwind.titles()).to.include.members(acknowledged);
    const images = await terminal.type(
      `docker inspect -f '{{.Image}}' $(${compose} ps --quiet service-1 service-2)`,
    );
    const built = await terminal.type(`docker image inspect -f '{{.Id}}' backoffice:0.3.0`);
    expect(images.trim().split('\n')).to.deep.equal([built.trim(), built.trim()]);
  });

  it('the login of the service gets another password under load, and no request is refused', async () => {
    const [before] = await secretsOf(['service-database-url']);

    const { failed, acknowledged } = await northwind.load(
      'service login',
      change('The login of the service'),
    );

    expect(failed).to.deep.equal([]);
    expect(await northwind.titles()).to.include.members(acknowledged);
    expect(await secretsOf(['service-database-url'])).to.not.deep.equal([before]);
  });

  it('the login of the operator gets another password on both servers, with which commands go on', async () => {
    const [before] = await secretsOf(['postgres-password']);

    await change('The login of the operator');

    const [password] = await secretsOf(['postgres-password']);
    expect(password).to.not.equal(before);
    expect(await terminal.type('backoffice doctor')).to.match(/^Checked 1 tenant on 2 servers: /m);
    for (const server of ['postgres-1', 'postgres-2']) {
      const url = `postgresql://operator:${before}@${server}/backoffice`;
      const { code, stderr } = await terminal.try(
        `docker exec deploy-${server}-1 psql '${url}' -c 'select 1'`,
      );
      expect(code, server).to.equal(2);
      expect(stderr).to.include('password authentication failed');
    }
  });

  it('the master key is changed under load: no request is refused, and no user is logged out', async () => {
    const [before] = await secretsOf(['master-key']);

    const { failed } = await northwind.load('master key', change('The master key'));

    expect(failed).to.deep.equal([]);
    const [present, previous] = await secretsOf(['master-key', 'master-key-previous']);
    expect(present).to.not.equal(before);
    expect(previous, 'the lines for the end of the change').to.equal(present);
    expect(await northwind.titles()).to.include('first');
    expect(await terminal.type('backoffice doctor')).to.match(/^Checked 1 tenant on 2 servers: /m);
  });

  it('the certificate of PostgreSQL and Redis is renewed, and everything connects with the new one', async () => {
    const before = await secretsOf(['tls-certificate', 'tls-key']);

    await change('Certificates');

    expect(await secretsOf(['tls-certificate', 'tls-key'])).to.not.deep.equal(before);
    await eventually(async () => (await northwind.titles()).includes('first'));
    expect(await terminal.type('backoffice doctor')).to.match(/^Checked 1 tenant on 2 servers: /m);
    const log = await terminal.type(
      `${compose} logs --since 30s --no-log-prefix service-1 service-2`,
    );
    expect(log).to.not.match(/"event":"rate_limits_own"/);
  });

  /**
   * Types all lines of a section about a secret, in the shell in which processes are restarted.
   */
  async function change(heading: string): Promise<void> {
    const page = await readPage('operate/secrets');
    const shell = terminal.with(new PrintedLines(page, 'Restart the processes').blocks.join(''));

    for (const block of new PrintedLines(page, heading).blocks) {
      await shell.type(block);
    }
  }
});

/** Replaces a text that a file has. */
async function edit(file: string, text: RegExp, replacement: string): Promise<void> {
  const before = await readFile(file, 'utf8');
  const after = before.replace(text, replacement);
  if (after === before) throw new Error(`${file} has no ${text}`);

  await writeFile(file, after);
}
