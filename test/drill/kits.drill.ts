import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createKit, type Kit, shellLines } from '../deploy/kits/kit.ts';
import { root } from '../support/command-line.ts';
import { type S3Server, startS3Server } from '../support/s3-server.ts';

/** The kits, as somebody installs them who pastes each line of the page into one shell. */
describe('drill: kits of deploy/', () => {
  let page: string;
  let kit: Kit | undefined;
  let store: S3Server | undefined;

  before(async () => {
    page = await readFile(join(root, 'docs/deploy.md'), 'utf8');
  });
  afterEach(async () => {
    await kit?.close();
    await store?.close();
    [kit, store] = [undefined, undefined];
  });

  it('every shell line of the page is in a section whose lines are run below', () => {
    const run = ['The image', 'One machine, with Compose', 'Kubernetes', 'systemd'];
    const others = page
      .split('\n## ')
      .filter(section => !run.includes(section.split('\n')[0] ?? ''));
    expect(others).to.have.length(2);
    expect(others.join()).to.not.include('```');
  });

  it('the lines for Compose, pasted one after another, start the service with a login of its own and back up its tenant', async () => {
    kit = await createKit(['docker', 'install'], [['postgres-1'], ['postgres-2']]);
    await writeFile(join(kit.scratch, 'haproxy.pem'), 'a certificate and its key');

    const lines = ['The image', 'One machine, with Compose'].map(heading =>
      shellLines(page, heading),
    );
    const { code, stdout, stderr } = await kit.run(lines.join('\n'));
    expect(code, `${stdout}${stderr}`).to.equal(0);

    const url = await readFile(join(kit.scratch, 'deploy/secrets/service-database-url'), 'utf8');
    expect(url).to.match(
      /^postgresql:\/\/backoffice_service:[\w-]+@postgres-1(:5432)?\/backoffice\?sslmode=verify-full\n$/,
    );

    // Two processes, at the first start, with TLS, and in the upgrade.
    expectServed(await kit.calls(), 6);
    expectChecked(stdout);
    expect(stdout).to.match(/^northwind: archived \d+ rows/m);
  });

  it('the lines for Kubernetes, pasted one after another, start the service with a login of its own beside its commands', async () => {
    const login = {
      accessKeyId: 'AKIAEXAMPLE',
      secretAccessKey: 'example',
      sessionToken: undefined,
      region: 'eu-central-1',
    };
    store = await startS3Server('backoffice-backup');
    store.logins.push(login);
    const url = store.environment.AWS_ENDPOINT_URL;
    kit = await createKit(['kubectl'], [['backoffice-control-rw'], ['backoffice-second-rw']], url);
    const lines = shellLines(page, 'Kubernetes')
      .replace('backup-access-key-id=…', `backup-access-key-id=${login.accessKeyId}`)
      .replace('backup-secret-access-key=…', `backup-secret-access-key=${login.secretAccessKey}`);

    const { code, stdout, stderr } = await kit.run(lines);

    expect(code, `${stdout}${stderr}`).to.equal(0);
    expectServed(await kit.calls(), 2); // at the first start, and in the upgrade
    expectChecked(stdout);
  });

  it('the lines for systemd, pasted one after another, start the service and its timers with the logins that they make', async () => {
    kit = await createKit(
      ['systemctl', 'systemd-run', 'useradd', 'install', 'psql'],
      [['localhost']],
    );
    const { code, stdout, stderr } = await kit.run(shellLines(page, 'systemd'));
    expect(code, `${stdout}${stderr}`).to.equal(0);
    expectServed(await kit.calls(), 1);
    expectChecked(stdout);
    expect(stdout).to.match(/^northwind: archived \d+ rows/m);
  });
});

/** The service listened this often, each time with a login that is not the operator's. */
function expectServed(calls: string, times: number): void {
  expect(calls.match(/"event":"listening"/g), calls).to.have.length(times);
  expect(calls).to.not.include('"event":"operator_login"');
}

/** A tenant was provisioned, and doctor found nothing that it fails for. */
function expectChecked(output: string): void {
  expect(output).to.include('Provisioned northwind.');
  expect(output).to.match(/^Checked 1 tenant on \d servers?: /m);
}
