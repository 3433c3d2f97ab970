import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { chromium, type Page } from 'playwright-core';
import { type Demo, root, startDemo } from './demo.ts';

// Makes the pictures of the console from a real one, in Chromium, with a small fleet on an
// embedded PostgreSQL:
//   npm run -s console:pictures

/**
 * Makes the fleet: one tenant with restored data beside its own, one that is suspended, and
 * archives of all but one.
 */
const prepared = [
  'bin/backoffice provision acme --name "Acme Ltd" --admin-email admin@acme.test',
  'bin/backoffice provision globex --name "Globex Corporation" --admin-email admin@globex.test',
  'bin/backoffice provision initech --name "Initech" --admin-email admin@initech.test',
  'bin/backoffice provision northwind --name "Northwind Traders" --admin-email admin@northwind.test',
  'bin/backoffice backup init',
  'bin/backoffice backup run --all',
  'bin/backoffice suspend globex --yes --reason "unpaid since October"',
  'bin/backoffice restore acme --archive latest',
  'bin/backoffice provision umbrella --name "Umbrella Trading" --admin-email admin@umbrella.test',
  'bin/backoffice doctor || true',
];
const [width, height] = [1180, 760];

/** What is shown, and how a page comes there. */
const shown: readonly [
  name: string,
  title: string,
  open: (page: Page, origin: string) => Promise<unknown>,
][] = [
  ['console-now', 'The console: what needs attention', (page, origin) => page.goto(`${origin}/`)],
  [
    'console-tenant',
    'The console: one tenant',
    (page, origin) => page.goto(`${origin}/tenants/acme`),
  ],
  ['console-plan', 'The console: the plan of a swap, before it is done', showPlan],
];

async function showPlan(page: Page, origin: string): Promise<void> {
  await page.goto(`${origin}/operations/restore/swap?slug=acme&reason=prices+of+yesterday`);
  await page.getByRole('button', { name: 'Show the plan' }).click();
  await page.getByRole('button', { name: 'Run it' }).waitFor();
}

const demo = await startDemo(120);
try {
  await setRecipient(demo);
  for (const line of prepared) await demo.type(line);
  await picture(demo);
} finally {
  await demo.stop();
}

/** Lets the commands of a demo seal archives, and open them. */
async function setRecipient({ environment, type }: Demo): Promise<void> {
  const made = await type('bin/backoffice backup keygen');
  const file = join(environment.DATA_DIR ?? '', 'identity.txt');
  await writeFile(file, made, { mode: 0o600 });

  environment.BACKUP_RECIPIENTS = /BACKUP_RECIPIENTS=(\S+)/.exec(made)?.[1];
  environment.BACKUP_IDENTITY_FILE = file;
}

async function picture({ environment }: Demo): Promise<void> {
  const command = spawn(
    join(root, 'bin', 'backoffice'),
    ['console', '--no-browser', '--port', '0'],
    {
      cwd: root,
      env: environment,
    },
  );
  const url = await new Promise<string>((resolve, reject) => {
    let text = '';
    command.stdout.on('data', data => {
      text += data;
      const found = /http:\S+token=[\w-]+/.exec(text);
      if (found) resolve(found[0]);
    });
    command.once('exit', code => reject(new Error(`the console ended with ${code}`)));
  });
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox'],
  });
  try {
    const page = await browser.newPage({ viewport: { width, height } });
    await page.goto(url);
    const { origin } = new URL(url);
    for (const [name, title, open] of shown) {
      await open(page, origin);
      const images: string[] = [];
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        images.push((await page.screenshot()).toString('base64'));
      }
      await writeFile(join(root, `docs/pictures/${name}.svg`), svg(title, images));
    }
  } finally {
    await browser.close();
    command.kill('SIGINT');
    await new Promise(resolve => command.once('exit', resolve));
  }
}

/** One picture that is light or dark as its reader's system is. */
function svg(title: string, [light, dark]: readonly string[]): string {
  const image = (name: string, data: string | undefined): string =>
    `  <image class="${name}" width="${width}" height="${height}" href="data:image/png;base64,${data}"/>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title">
  <title id="title">${title}</title>
  <style>.dark { display: none } @media (prefers-color-scheme: dark) { .dark { display: inline } .light { display: none } }</style>
${image('light', light)}
${image('dark', dark)}
  <rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" fill="none" stroke="#8c959f"/>
</svg>
`;
}
