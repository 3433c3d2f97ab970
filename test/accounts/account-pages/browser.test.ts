import { expect } from 'chai';
import { describeInBrowser } from '../../docs/browser.ts';
import { eventually } from '../../support/eventually.ts';
import { linkIn, startMailServer } from '../../support/mail-server.ts';
import { use } from '../../support/use.ts';
import { invitation, usersPath } from '../people/people-world.ts';
import { expectAccessible, submitByKeyboard } from './account-page.ts';

describe('account pages', () => {
  const mail = use(startMailServer);

  describeInBrowser(
    'account pages in a browser',
    (world, open) => {
      it('by keyboard alone, an invited person sets a password on a page in which axe finds nothing', async () => {
        const [email, password] = ['keyboard@pages.test', 'three quiet rivers'];
        const admin = await world().login(world().acme);
        const invited = await admin.post(usersPath, invitation({ Email: email }));
        expect(invited.status).to.equal(201);

        const { pathname, search } = new URL(
          await eventually(() => linkIn(mail.messagesTo(email)[0]?.content)),
        );

        const { page, browserErrors, origins } = await open(pathname + search);
        await expectAccessible(page);

        await submitByKeyboard(page, password, password);
        await page.getByRole('heading', { name: 'Your password is set' }).waitFor();

        await world().login(world().acme, { email, password });
        expect(browserErrors).to.deep.equal([]);
        expect([...origins]).to.deep.equal([world().url]);

        await page.close();
      });
    },
    () => ({ SMTP_URL: mail.url }),
  );
});
