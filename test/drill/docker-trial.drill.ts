import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { copyClone, ownHome } from '../deploy/engines/clone.ts';
import { skipIfLeftOut, Terminal } from '../deploy/engines/machine.ts';
import { Northwind, sendTo } from '../deploy/engines/northwind.ts';
import { root } from '../support/command-line.ts';

/**
 * The two lines of the README for somebody with Docker, typed in a clone that only its owner may
 * read.
 */
describe('drill: compose.yaml of the README in a real Docker', function () {
  this.timeout(900_000);
  this.bail(true);

  const url = 'http://127.0.0.1:3000';
  let start: string;
  let provision: string;
  let clone: string | undefined;
  let terminal: Terminal;
  let acme: Northwind;

  before(async function () {
    skipIfLeftOut(this, ['docker', 'version']);

    const readme = await readFile(join(root, 'README.md'), 'utf8');
    [, start = '', provision = ''] =
      /^(docker compose up .*)\n(.* provision .*)$/m.exec(readme) ?? [];
    clone = await mkdtemp(join(tmpdir(), 'backoffice-clone-'));
    await copyClone(clone);
    terminal = new Terminal(clone, ownHome(clone));
    await terminal.type('chmod -R go= .');
    acme = new Northwind(sendTo(url), 'acme');
  });

  after(async () => {
    if (!clone) return;

    await terminal.try('docker compose --profile commands down --volumes --timeout 1');
    await rm(clone, { recursive: true, force: true });
  });

  it('the lines start the service with its guide, and a tenant whose administrator logs in', async () => {
    await terminal.type(start);
    const printed = await terminal.type(provision);

    expect((await fetch(`${url}/docs`)).status).to.equal(200);
    const password = /^password +(\S+)$/m.exec(printed)?.[1] ?? '';
    await acme.login(password);
    await acme.add('first');
    expect(await acme.titles()).to.include('first');
  });

  it('after down, the first line brings back everything, and the login of before is still one', async () => {
    await terminal.type('docker compose down');

    await terminal.type(start);

    expect(await acme.titles()).to.include('first');
  });

  it('a command is named by its help, and doctor finds nothing to mend', async () => {
    expect(await terminal.type('docker compose run --rm backoffice --help')).to.include(
      'provision',
    );
    expect(await terminal.type('docker compose run --rm backoffice doctor')).to.match(
      /^Checked 1 tenant on 1 server: /m,
    );
  });

  it('docker compose down --volumes leaves no container, volume or network of the trial', async () => {
    await terminal.type('docker compose down --volumes');

    const name = basename(clone ?? '').toLowerCase();
    const left = await terminal.type(`
      docker ps --all --quiet --filter label=com.docker.compose.project=${name}
      docker volume ls --quiet --filter label=com.docker.compose.project=${name}
      docker network ls --quiet --filter label=com.docker.compose.project=${name}
    `);
    expect(left).to.equal('');
  });
});
