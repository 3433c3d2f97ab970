import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import type { Browser, Page } from 'playwright-core';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import {
  besideWindow,
  findViolations,
  hasBrowser,
  isDark,
  launchBrowser,
  overflow,
  textContrasts,
  unreachableScrollers,
} from '../docs/browser.ts';
import { openPage, type PageOptions } from '../operator/console/browser-page.ts';
import { useConsole } from '../operator/console/console-client.ts';
import { eventually } from '../support/eventually.ts';
import { controlSql, useWorld } from '../support/world.ts';

const pages = [
  '/',
  '/tenants?q=acme',
  '/tenants?q=admin@acme.test',
  '/tenants/acme',
  '/tenants/acme/commands',
  '/tenants?health=unwell',
  '/migrations',
  '/recovery',
  '/recovery/acme?at=2026-01-01T10:00',
  '/findings',
  '/capacity',
  '/log',
  '/operations',
  '/operations/provision',
  '/operations/migrate',
  '/operations/user/add?slug=acme',
  '/nowhere',
];

/** The widths at which axe looks at each page: a phone, tablets, and a desktop. */
const axeWidths = [390, 590, 768, 1280];

(hasBrowser ? describe : describe.skip)('drill: all pages of the console in a browser', () => {
  const world = useWorld();
  const opened = useConsole(world);
  let browser: Browser;
  before(async () => {
    browser = await launchBrowser();
    await controlSql(
      world,
      `insert into operator_actions (operator, build, command, slug, reason, state, error, finished_at)
       values ('jane@office', '0', 'move', 'acme', 'more room', 'failed', 'The server does not respond', now())`,
    );

    const finding = {
      id: 'aaaaaaaa',
      check: 'excess_rights',
      server: 'default',
      severity: 'error',
      tenant: 'acme',
      tenantGuid: world.acme.guid,
    };
    const texts = {
      problem: 'role a is createdb',
      remedy: 'Remove it (bin/backoffice doctor --fix aaaaaaaa).',
    };
    const findings = [{ ...finding, ...texts, repair: 'safe', fixed: false }];
    const report = { servers: 1, tenants: 2, unchanged: 0, healthy: false, measured: [], findings };

    await controlSql(
      world,
      `insert into doctor_reports (made_by, report) values ('jane@office', '${JSON.stringify(report)}')`,
    );
  });
  after(() => browser?.close());

  const open = (options: PageOptions = {}): Promise<Page> => openPage(browser, opened, options);

  it('no page of the console breaks a rule of axe, or is wider than a phone, in light, dark and forced colours', async () => {
    const errors: string[] = [];
    const page = await openPage(browser, opened, {}, text => errors.push(text));

    const { path: list } = await opened.submit('/operations/list', { step: 'run' });
    await opened.ended(list);

    for (const path of [...pages, list]) {
      await page.goto(opened.origin + path);

      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme, forcedColors: 'none' });
        // 640: a window of 1280 that is enlarged to 200 %.
        for (const width of [320, 390, 590, 640, 768, 1280]) {
          const at = `${path} at ${width} ${colorScheme}`;
          await page.setViewportSize({ width, height: 800 });
          expect(await page.evaluate(overflow), at).to.equal(0);
          expect(await page.evaluate(besideWindow), at).to.deep.equal([]);
          // A script names them in the frame after the one that has made them scroll.
          await eventually(async () =>
            expect(await page.evaluate(unreachableScrollers), at).to.deep.equal([]),
          );
          if (axeWidths.includes(width)) {
            expect(await findViolations(page), at).to.deep.equal([]);
          }
        }

        const contrasts = await page.evaluate(textContrasts);
        expect(
          contrasts.filter(({ ratio }) => ratio < 4.5),
          path,
        ).to.deep.equal([]);
        expect(await page.evaluate(isDark)).to.equal(colorScheme === 'dark');
      }

      await page.emulateMedia({ forcedColors: 'active' });
      expect(await findViolations(page), `${path} in forced colours`).to.deep.equal([]);
    }

    await page.close();
    expect(errors.filter(text => !text.includes('404'))).to.deep.equal([]);
  });

  /**
   * Opens the page of a run that stands still until the work is done. A lock holds it until its
   * process is stopped: for longer than a statement may take, a lock would end it.
   */
  async function withRun(page: Page, work: () => Promise<void>): Promise<void> {
    await withConnection(world.environment.DATABASE_URL ?? '', async client => {
      await client.query(`begin; select from tenants where slug = 'globex' for update`);
      await page.goto(`${opened.origin}/operations/edit?slug=globex&name=Globex+2`);
      await page.getByRole('button', { name: 'Run it' }).click();

      const pid = await eventually(runOfConsole);
      process.kill(pid, 'SIGSTOP');
      await client.query('rollback');

      try {
        await page.locator('#cancel').waitFor();
        await work();
      } finally {
        process.kill(pid, 'SIGCONT');
      }
    });
  }

  /** Returns the process of the only command that the console runs. */
  async function runOfConsole(): Promise<number> {
    const { pid } = opened.process;
    return Number(await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8'));
  }

  it('a live page keeps focus and selection, has copy buttons, and says when the console does not answer', async () => {
    const page = await open();
    const pageOf = (text: string): string => `<p id="run-status">It runs</p>
<div id="run"><dl>${text}</dl><pre tabindex="0" aria-label="Result">${text}</pre></div>`;

    let text: string | undefined = 'first';
    await page.route('**/runs/*', route => {
      if (route.request().resourceType() === 'document') return route.continue();
      return text === undefined
        ? route.abort()
        : route.fulfill({ contentType: 'text/html', body: pageOf(text) });
    });

    await withRun(page, async () => {
      const block = page.locator('#run pre');
      await block.filter({ hasText: 'first' }).waitFor();
      await block.focus();
      await page.evaluate(`getSelection().selectAllChildren(document.querySelector('#run pre'))`);

      text = 'first, second';
      await block.filter({ hasText: 'first, second' }).waitFor();
      await block.and(page.locator(':focus')).waitFor();
      expect(await page.evaluate('String(getSelection())')).to.equal('first');
      expect(
        await page.locator('#run').getByRole('button', { name: 'Copy Result' }).count(),
      ).to.equal(1);

      text = 'other';
      await page.locator('#run-status').and(page.locator(':focus')).waitFor();

      text = undefined;
      await page
        .getByRole('status')
        .filter({
          hasText: /The console does not answer. This is the state of \d\d:\d\d:\d\d UTC./,
        })
        .waitFor();
    });
    await page.close();
  });

  it('without script, the button that ends a run is one press of Tab away after its page was loaded again', async () => {
    const page = await open({ javaScriptEnabled: false });

    await withRun(page, async () => {
      let seen = '';

      // On a busy machine, the page may be loaded once more between the address and the key.
      await eventually(async () => {
        await page.waitForURL(({ hash, href }) => hash === '#run' && href !== seen);
        seen = page.url();
        await page.keyboard.press('Tab');
        return page.locator('#cancel').and(page.locator(':focus')).isVisible();
      });
    });

    // A command that stood still for longer than its statements may take has failed.
    await page
      .getByRole('status')
      .filter({ hasText: /It (is done|has failed)\./ })
      .waitFor();
    await page.close();
  });

  it('without script, a run shows its progress and its end, and the columns of a list sort it', async () => {
    const page = await open({ javaScriptEnabled: false });
    await page.goto(`${opened.origin}/operations/resume?slug=globex`);
    await page.getByRole('button', { name: 'Run it' }).click();
    await page.getByText('globex is active.').waitFor();

    await page.goto(`${opened.origin}/tenants`);
    await page.getByRole('button', { name: 'Slug' }).click();
    await page.waitForURL('**sort=-slug');

    const heading = page.getByRole('columnheader', { name: 'Slug' });
    expect(await heading.getAttribute('aria-sort')).to.equal('descending');
    expect(await page.getByRole('rowheader').allTextContents()).to.deep.equal(['globex', 'acme']);
    await page.close();
  });
});
