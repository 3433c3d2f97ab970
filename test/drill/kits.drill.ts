import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createKit, type Kit, shellLines } from '../deploy/kits/kit.ts';
import { root } from '../support/command-line.ts';
import { type S3Server, startS3Server } from '../support/s3-server.ts';

/** The kit of Kubernetes, as somebody installs it who pastes each line of the page. */
describe('drill: the kit of Kubernetes', () => {
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
    kit = await createKit([['backoffice-control-rw'], ['backoffice-second-rw']], url);
    const lines = shellLines(page, 'Kubernetes')
      .replace('backup-access-key-id=…', `backup-access-key-id=${login.accessKeyId}`)
      .replace('backup-secret-access-key=…', `backup-secret-access-key=${login.secretAccessKey}`);

    const { code, stdout, stderr } = await kit.run(lines);

    expect(code, `${stdout}${stderr}`).to.equal(0);
    expectServed(await kit.calls(), 2); // at the first start, and in the upgrade
    expectChecked(stdout);
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
