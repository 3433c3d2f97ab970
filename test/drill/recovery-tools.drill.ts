import { randomBytes } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { skipIfLeftOut, Terminal } from '../deploy/engines/machine.ts';
import { Northwind, sendTo } from '../deploy/engines/northwind.ts';
import { PrintedLines, readPage } from '../deploy/engines/printed-lines.ts';
import { runScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { createServiceProcesses } from '../support/service-processes.ts';

const [archiving, recovering] = ['Archive the write-ahead log', 'Recover a server to a moment'];
/** The folder in which the lines put a recovered server. */
const recovered = '/var/lib/postgresql/recovered';

interface Tool {
  /** Prints the version of the tool. */
  readonly version: string;
  /** The file of its settings, and a word of the block of the page that has them. */
  readonly file: readonly [path: string, word: string];
  /** A word of the block of settings of PostgreSQL. */
  readonly setting: string;
  /** Words of the blocks that begin to archive, and that recover. */
  readonly begin: string;
  readonly recover: string;
  /** Makes what the page takes for granted: a disk, or names, logins and keys. */
  readonly given: string;
  /** The line that recovers chosen databases, `$database`, and what is said of a younger one. */
  readonly chosen?: readonly [line: string, said: string];
}

const tools: Record<string, Tool> = {
  pgBackRest: {
    version: 'pgbackrest version',
    file: ['/etc/pgbackrest.conf', 'repo1-path'],
    setting: 'pgbackrest',
    begin: 'stanza-create',
    recover: 'pgbackrest --stanza',
    given: 'install -d -o postgres -m 700 /mnt/backup',
    chosen: [
      `install -d -o postgres -m 700 ${recovered}
       sudo -u postgres pgbackrest --stanza=default --pg1-path=${recovered} --db-include=$database restore`,
      'to include',
    ],
  },
  Barman: {
    version: 'barman --version',
    file: ['/etc/barman.d/default.conf', 'ssh_command'],
    setting: 'barman-wal-archive',
    begin: 'barman backup',
    recover: 'barman restore',
    given: `
grep -q backup.internal /etc/hosts || echo '127.0.0.1 db.internal backup.internal' >> /etc/hosts
systemctl start ssh
key=.ssh/id_ed25519
for login in barman postgres; do
  sudo -iu $login sh -c "[ -e $key ] || { mkdir -p -m 700 .ssh; ssh-keygen -qt ed25519 -N '' -f $key; }"
  sudo -iu $login sh -c 'ssh-keyscan -qt ed25519 db.internal backup.internal > .ssh/known_hosts'
done
sudo -iu barman cat $key.pub | sudo -iu postgres tee -a ~postgres/.ssh/authorized_keys > /dev/null
sudo -iu postgres cat $key.pub | sudo -iu barman tee -a ~barman/.ssh/authorized_keys > /dev/null
password=$(openssl rand -hex 12)
sudo -u postgres psql -qc "create role barman superuser login password '$password'"
echo "*:*:*:barman:$password" | sudo -iu barman sh -c 'umask 077; cat > .pgpass'
`,
  },
};

/**
 * What somebody types who archives the write-ahead log of a server and recovers it to a moment,
 * on a host with the tool and a PostgreSQL server of the distribution, which is made anew.
 */
for (const [name, tool] of Object.entries(tools)) {
  describe(`drill: the lines for ${name} on a real host`, function () {
    this.timeout(900_000);
    this.bail(true);

    const terminal = new Terminal('/');
    const processes = createServiceProcesses();
    let major: string;
    let lines: PrintedLines;
    let environment: Record<string, string>;
    let url: string;
    let northwind: Northwind;
    /** A tenant that is younger than the base backup. */
    let globex: Northwind;
    /** The moment to which the server is recovered, as PostgreSQL writes it. */
    let moment: string;

    before(async function () {
      skipIfLeftOut(this, ['systemctl', 'list-units']);
      const version = await terminal.try(`${tool.version}; pg_lsclusters -h`);
      if (version.code !== 0) {
        console.log(`      ${name} or PostgreSQL is not installed: the drill is skipped`);
        return this.skip();
      }

      console.log(`      ${version.stdout.trim().replaceAll('\n', '; ')}`);
      major = (await readdir('/usr/lib/postgresql')).sort().at(-1) ?? '';
      lines = new PrintedLines(await readPage('operate/restore'), recovering);
      await removeAll();
      environment = await makeInstallation();
      await command('control', 'migrate');
      ({ url } = await processes.start(environment));
      northwind = new Northwind(sendTo(url), 'northwind');
      await northwind.login(await provision('northwind'));
      await northwind.add('before the base backup');
    });
    after(async () => {
      await processes.killAll();
      if (major) await removeAll();
    });

    /** Makes the server of the host anew, without settings, and removes what recovers it. */
    async function removeAll(): Promise<void> {
      await terminal.type(`
        for folder in ${recovered}*; do
          [ ! -e $folder/postmaster.pid ] || kill -9 $(head -n 1 $folder/postmaster.pid)
        done
        pg_dropcluster --stop ${major} main || true
        rm -rf ${recovered}* /mnt/backup /etc/barman.d/default.conf
        rm -rf /var/lib/barman/default /var/lib/barman/.default* ~postgres/.ssh ~barman/.ssh
        pg_createcluster ${major} main > /dev/null
        systemctl daemon-reload
        systemctl restart postgresql@${major}-main
      `);
    }

    async function makeInstallation(): Promise<Record<string, string>> {
      const password = randomBytes(12).toString('hex');
      await terminal.type(`sudo -u postgres psql -qc \\
        "create role operator login createdb createrole password '${password}'"`);
      return {
        DATABASE_URL: `postgresql://operator:${password}@127.0.0.1/backoffice`,
        MASTER_KEY: randomBytes(32).toString('base64'),
      };
    }

    async function command(...words: string[]): Promise<string> {
      const { code, stdout, stderr } = await runScript('scripts/backoffice.ts', words, environment);
      expect(code, `${words.join(' ')}: ${stderr}${stdout}`).to.equal(0);

      return stdout;
    }

    /** @returns the password of its administrator */
    async function provision(slug: string): Promise<string> {
      const email = `admin@${slug}.test`;
      const said = await command('provision', slug, '--name', slug, '--admin-email', email);
      return /^password +(\S+)$/m.exec(said)?.[1] ?? '';
    }

    /** Restores a tenant from the recovered server, whose URL comes by stdin. */
    function restore(slug: string, ...options: string[]) {
      const from = new URL(environment.DATABASE_URL ?? '');
      [from.port, from.pathname] = ['5433', '/postgres'];
      const words = ['restore', slug, '--from', ...options];
      return runScript('scripts/backoffice.ts', words, environment, from.href);
    }

    /** Types a block of the page for this folder, moment and version of PostgreSQL. */
    const type = (word: string, at = moment) =>
      terminal
        .with(`recovered=${recovered}\nmoment='${at}'`)
        .try(lines.block(word).replaceAll('/postgresql/18/', `/postgresql/${major}/`));

    /** Types a block that has to succeed, and returns what it prints. */
    async function typeWell(word: string, at?: string): Promise<string> {
      const { code, stdout, stderr } = await type(word, at);
      const log = await readFile(`${recovered}.log`, 'utf8').catch(() => '');
      expect(code, stderr + stdout + log).to.equal(0);

      return stdout;
    }

    const now = async (): Promise<string> => {
      const text = `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00'`;
      return (await terminal.type(`sudo -u postgres psql -XAtc "${text}"`)).trim();
    };

    it('the settings and lines of the page archive the server, and make a base backup', async () => {
      const page = await readPage('operate/backup');
      const files = new PrintedLines(page, archiving, 'ini');
      const atVersion = (text: string) => text.replaceAll('/18/', `/${major}/`);
      const [path, word] = tool.file;
      await terminal.type(tool.given);
      await writeFile(path, atVersion(files.block(word)));
      const folder = `/etc/postgresql/${major}/main/conf.d`;
      await terminal.type(`install -d -o postgres ${folder}`);
      await writeFile(`${folder}/archive.conf`, files.block(`'${tool.setting}`));
      await terminal.type('systemctl restart postgresql');

      const said = await terminal.type(new PrintedLines(page, archiving).block(tool.begin));

      console.log(said.trim().replaceAll(/^/gm, '      | '));
      const { measured, findings } = JSON.parse(await command('doctor', '--json'));
      expect(measured[0].archivedAt).to.be.a('string');
      expect(JSON.stringify(findings)).to.not.include('wal_not_archived');
    });

    it('a tenant that is younger than the base backup gets the data of the moment, and another tenant keeps its own', async () => {
      globex = new Northwind(sendTo(url), 'globex');
      await globex.login(await provision('globex'));
      await eventually(async () => (await northwind.titles()).length > 0); // after the restart
      for (const each of [northwind, globex]) await each.add('before the moment');
      const earlier = await globex.titles();
      moment = await now();
      for (const each of [northwind, globex]) await each.add('after the moment');
      const ofNorthwind = await northwind.titles();

      await typeWell(tool.recover);
      console.log((await typeWell('pg_ctl -D $recovered -l')).replaceAll(/^/gm, '      | '));
      const { code, stdout, stderr } = await restore(
        'globex',
        '--until',
        moment.replace(' ', 'T').replace('+00', 'Z'),
      );
      expect(code, stderr + stdout).to.equal(0);
      console.log(stdout.replaceAll(/^/gm, '      | '));
      await command('restore', 'swap', 'globex', '--yes');

      await eventually(async () => (await globex.titles()).length === earlier.length);
      expect(await globex.titles()).to.deep.equal(earlier);
      expect(await northwind.titles()).to.deep.equal(ofNorthwind);
    });

    it('a time before the last change of the recovered server is refused', async () => {
      const until = new Date(new Date(moment).getTime() - 60_000).toISOString();

      const { code, stderr } = await restore('globex', '--until', until);

      expect(code).to.equal(1);
      expect(stderr).to.include('later');
    });

    it('the last lines remove the recovered server, and nothing of it is left', async () => {
      await typeWell('immediate stop');

      expect(await terminal.type(`ls -d ${recovered}* 2> /dev/null || true`)).to.equal('');
    });

    it('where only chosen databases are recovered, one that is younger than the base backup is refused', async function () {
      if (!tool.chosen) return this.skip();
      const [line, said] = tool.chosen;
      const { database } = JSON.parse(await command('show', 'globex', '--json'));

      const { code, stdout, stderr } = await terminal.with(`database=${database}`).try(line);

      expect(code).to.not.equal(0);
      expect(stdout + stderr)
        .to.include(said)
        .and.to.include(database);
      await terminal.type(`rm -r ${recovered}`);
    });

    it('where the log ends before the moment, the last lines say so, and no server runs', async () => {
      const later = (await now()).replace(/^\d+/, year => String(Number(year) + 1));
      await typeWell(tool.recover, later);

      const said = await type('pg_ctl -D $recovered -l', later);

      expect(said.stdout + said.stderr).to.include(
        'recovery ended before configured recovery target was reached',
      );
      const { code } = await terminal.try('pg_isready -q -h 127.0.0.1 -p 5433');
      expect(code, 'the code of pg_isready').to.equal(2);
      expect(await readFile(`${recovered}.log`, 'utf8')).to.not.include('ready to accept');
    });
  });
}
