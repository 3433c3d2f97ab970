import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import type { Browser, Page } from 'playwright-core';
import { clientSource } from '../clients/built-client.ts';
import { readAdminPage } from '../docs/admin-page.ts';
import { launchBrowser } from '../docs/browser.ts';
import { compileProject } from '../support/compile.ts';
import { useLogin, useWorld } from '../support/world.ts';

const packages = [
  '@types/react-dom@19.3.0',
  '@types/react@19.3.3',
  'esbuild@0.28.2',
  'react-admin@5.15.4',
  'react-dom@19.3.1',
  'react@19.3.1',
  'typescript@5.9.3',
];
const entities = '/api/v1/Entities';

const main = `import { createRoot } from 'react-dom/client';
import { App } from './app.js';
createRoot(document.getElementById('root') as HTMLElement).render(<App />);`;
const html = `<!doctype html><title>Admin</title><div id="root"></div>
<script type="module" src="/app/main.js"></script>`;

// It installs react-admin from the registry of npm.
describe('the admin page of the guide, in Chromium', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let folder: string;
  let browser: Browser;
  let page: Page;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-admin-'));
    await buildPage();
    browser = await launchBrowser();
  });

  after(async () => {
    await browser?.close();
    await rm(folder, { recursive: true });
  });

  /** Compiles and bundles the files of the guide. */
  async function buildPage(): Promise<void> {
    const run = (program: string, args: string[]) =>
      promisify(execFile)(program, args, { cwd: folder });
    const files = {
      ...(await readAdminPage()),
      'main.tsx': main,
      'globals.d.ts': 'declare const TENANT: string; declare const SERVICE: string;',
      'package.json': '{ "type": "module", "private": true }',
    };
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
    await run('npm', ['install', '--no-audit', '--no-fund', '--save-exact', ...packages]);

    const client = join(folder, 'node_modules/sales-back-office-client');
    await mkdir(client);
    await cp(join(clientSource, 'package.json'), join(client, 'package.json'));
    compileProject(clientSource, join(client, 'dist'));

    const strict = ['--noEmit', '--strict', '--skipLibCheck', '--jsx', 'react-jsx'];
    const modern = ['--module', 'nodenext', '--target', 'es2022', '--types', 'react'];
    await run('npx', ['tsc', ...strict, ...modern, 'main.tsx', 'globals.d.ts']);
    const values = ['--define:SERVICE=location.origin', `--define:TENANT="${world.acme.guid}"`];
    const output = ['--bundle', '--format=esm', '--jsx=automatic', '--outfile=main.js'];
    await run('npx', ['esbuild', 'main.tsx', ...output, ...values]);
  }

  async function openPage(): Promise<void> {
    page = await browser.newPage();
    page.setDefaultTimeout(60_000);
    await page.route('**/app/**', async route => {
      const isScript = route.request().url().endsWith('/main.js');
      await route.fulfill({
        contentType: isScript ? 'text/javascript' : 'text/html',
        body: isScript ? await readFile(join(folder, 'main.js'), 'utf8') : html,
      });
    });
    await page.goto(`${world.url}/app/`);
    await page.locator('[name=username]').fill(world.acme.admin.email);
    await page.locator('[name=password]').fill(world.acme.admin.password);
    await page.getByRole('button', { name: 'Sign in' }).click();
  }

  const create = (Name: string) => acme.post(entities, { Name, EntityType: 'customer' });
  const row = (Name: string) => page.getByRole('row').filter({ hasText: Name });

  it('lists with page numbers, sort, filters and references, creates, shows errors and 412, deletes after an undo, and follows', async () => {
    await globex.post(entities, { Name: 'of globex', EntityType: 'customer' });
    for (let index = 10; index < 40; index++) await create(`Customer ${index}`);
    await openPage();

    await row('Customer 10').waitFor();
    await row('Customer 19').filter({ hasText: 'Prospect' }).waitFor();
    expect(await page.getByText('of globex').count()).to.equal(0);
    await page.getByText('1-10 of 30').waitFor();
    await page.getByRole('button', { name: 'Go to page 3' }).click();
    await row('Customer 39').waitFor();
    await page.getByRole('columnheader').getByText('Name').click();
    await page.getByText('1-10 of 30').waitFor();
    await row('Customer 39').waitFor();

    await page.locator('[name=q]').fill('customer 25');
    await page.getByText('1-1 of 1').waitFor();
    await row('Customer 25').waitFor();
    await page.locator('[name=q]').fill('');
    await page.getByText('1-10 of 30').waitFor();

    await create('Zebra, live');
    await row('Zebra, live').waitFor();

    await page.getByRole('link', { name: 'Create' }).click();
    await page.getByLabel('Entity type').click();
    await page.getByRole('option', { name: 'supplier' }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('is required').waitFor();
    await page.locator('[name=Name]').fill('Zoo, created');
    await page.getByRole('button', { name: 'Save' }).click();
    await row('Zoo, created').waitFor();

    await row('Zoo, created').click();
    await page.locator('[name=Name]').fill('Zoo, of this page');
    const [zoo] = (await acme.get(`${entities}?filter[Name]=Zoo, created`)).body;
    await acme.patch(`${entities}/${zoo.Id}`, { Name: 'Zoo, of another' });
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('The record has changed').waitFor();
    expect((await acme.get(`${entities}/${zoo.Id}`)).body.Name).to.equal('Zoo, of another');

    await page.getByRole('menuitem', { name: 'Entities' }).click();
    await row('Zoo, of another').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('button', { name: 'Undo' }).click();
    await row('Zoo, of another').waitFor();
    await row('Zoo, of another').getByRole('button', { name: 'Delete' }).click();
    await row('Zoo, of another').waitFor({ state: 'detached' });
    await page.waitForResponse(response => response.request().method() === 'DELETE');
    expect((await acme.get(`${entities}/${zoo.Id}`)).status).to.equal(404);
  });
});
