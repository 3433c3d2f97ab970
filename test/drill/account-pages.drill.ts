import { expect } from 'chai';
import { expectAccessible, submitByKeyboard } from '../accounts/account-pages/account-page.ts';
import { invitation, usersPath } from '../accounts/people/people-world.ts';
import { describeInBrowser } from '../docs/browser.ts';
import { eventually } from '../support/eventually.ts';
import { linkIn, startMailServer } from '../support/mail-server.ts';
import { use } from '../support/use.ts';

const password = 'three quiet rivers';

describe('drill: account pages', () => {
  const mail = use(startMailServer);

  describeInBrowser(
    'account pages in a browser',
    (world, open) => {
      it('by keyboard alone and without a script, an invited person sets a password and logs in; axe finds nothing', async () => {
        const admin = await world().login(world().acme);
        const email = 'keyboard@pages.test';
        const invited = await admin.post(usersPath, invitation({ Email: email }));
        expect(invited.status).to.equal(201);

        const { pathname, search } = new URL(
          await eventually(() => linkIn(mail.messagesTo(email)[0]?.content)),
        );

        const { page, browserErrors, origins } = await open(pathname + search);
        const { keyboard } = page;
        const expectGood = () => expectAccessible(page);
        const fill = (...texts: string[]) => submitByKeyboard(page, ...texts);

        await expectGood();
        await fill('short', 'shorter');
        await page.getByText('This password is too short').waitFor();
        await expectGood();

        await fill(password, password);
        await page.getByRole('heading', { name: 'Your password is set' }).waitFor();
        await expectGood();
        expect(browserErrors.filter(text => !text.includes('status of 400'))).to.deep.equal([]);

        await keyboard.press('Tab');
        await keyboard.press('Enter');
        await page.locator('.login').getByLabel('E-mail').waitFor();
        expect(await page.locator('.login').getByLabel('Tenant').inputValue()).to.equal(
          world().acme.guid,
        );

        await page.locator('.login').getByLabel('E-mail').focus();
        await keyboard.type(email);
        await keyboard.press('Tab');
        await keyboard.type(password);
        await keyboard.press('Enter');
        await page.getByText(`Logged in as ${email}`).waitFor();

        await page.goto(`${world().url}${pathname}${search}`);
        await page.getByRole('heading', { name: 'This link does not work any more' }).waitFor();
        await expectGood();
        await page.goto(`${world().url}/reset?tenant=${world().acme.guid}`);
        await expectGood();
        await fill(email);
        await page.getByRole('heading', { name: 'Look into your mailbox' }).waitFor();
        await expectGood();
        expect([...origins]).to.deep.equal([world().url]);
        await page.close();
      });
    },
    () => ({ SMTP_URL: mail.url }),
  );
});
