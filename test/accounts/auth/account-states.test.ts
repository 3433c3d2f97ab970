import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import type { ApiResponse } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { linkIn, readable, startMailServer } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant, useLogin } from '../../support/world.ts';
import { invitation, newAddress, usersPath } from '../people/people-world.ts';
import { factorWorld } from './factors/factor-world.ts';
import { addSampleUser } from './sample-users.ts';

const password = 'three quiet rivers';

/** The subjects of the mails, by their names in the guide. */
const subjects: Readonly<Record<string, RegExp>> = {
  confirmation: /^Subject: Confirm your address for /m,
  invitation: /^Subject: Your invitation to /m,
  'new password': /^Subject: A new password for /m,
  'account exists': /^Subject: You have an account at /m,
  'first password': /^Subject: Set your password for /m,
  'registration expired': /^Subject: Your registration with .* has expired/m,
  disabled: /^Subject: Your account at .* is disabled/m,
};

/** The rows of a table of the guide, by the names of their columns. */
async function readTable(firstColumn: string): Promise<Record<string, string>[]> {
  const page = await readFile(new URL('../../../docs/guide/accounts.md', import.meta.url), 'utf8');
  const lines = page.split('\n');
  const start = lines.findIndex(line => line.startsWith(`| ${firstColumn} |`));
  const cellsOf = (line: string) =>
    line
      .slice(1, -1)
      .split('|')
      .map(cell => cell.trim());
  const names = cellsOf(lines[start] ?? '');
  const rows: Record<string, string>[] = [];

  for (const line of lines.slice(start + 2)) {
    if (!line.startsWith('|')) break;
    rows.push(Object.fromEntries(cellsOf(line).map((cell, index) => [names[index], cell])));
  }

  expect(rows.length, firstColumn).to.be.above(5);
  return rows;
}

describe('accounts, as the guide says', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url, RATE_LIMIT_FAILURES: '3/24h' }));
  const admin = useLogin(world, 'acme');
  const people = factorWorld(world);

  before(async () => {
    await controlSql(world, `update tenants set features = '{selfRegistration}'`);
    await eventually(async () => (await admin.get('/api/v1/auth/me')).body.features.length > 0);
  });

  const post = (
    path: string,
    body: object,
    tenant: TestTenant = world.acme,
  ): Promise<ApiResponse> =>
    world.anonymous.post(`/api/v1/auth/${path}`, body, { 'X-Tenant': tenant.guid });
  const idOf = async (email: string): Promise<number> => {
    const { body } = await admin.get(`${usersPath}?filter[Email]=${encodeURIComponent(email)}`);
    return body[0]?.Id;
  };
  const disable = async (email: string): Promise<void> => {
    expect((await admin.post(`${usersPath}/${await idOf(email)}/disable`)).status).to.equal(200);
  };
  const invite = async (email: string): Promise<void> => {
    expect((await admin.post(usersPath, invitation({ Email: email }))).status).to.equal(201);
  };
  const register = async (email: string): Promise<void> => {
    await post('register', { email, password, firstName: 'Nora', lastName: 'Newman' });
    await mailsSettled(world);
  };
  const expireLinks = async (email: string): Promise<void> => {
    await mailsSettled(world);
    await controlSql(
      world,
      `update mail_deliveries set expires_at = now() - interval '1 s'
        where user_id = (select id from users where email = ? and tenant_id = ?)`,
      [email, world.acme.id],
    );
  };

  /** Brings a new address into each state of the guide. */
  const states: Readonly<Record<string, (email: string) => Promise<unknown>>> = {
    unknown: async () => {},
    invited: invite,
    'invited, link expired': async email => {
      await invite(email);
      await expireLinks(email);
    },
    'invited and disabled': async email => {
      await invite(email);
      await disable(email);
    },
    'registered, not confirmed': register,
    'registered, link expired': async email => {
      await register(email);
      await expireLinks(email);
    },
    active: email => addSampleUser(world, world.acme, { email, password }),
    'active, with a second factor': async email => {
      await addSampleUser(world, world.acme, { email, password });
      await people.addTotp(await world.login(world.acme, { email, password }));
    },
    'active, role requires a second factor, none yet': async email => {
      await addSampleUser(world, world.acme, { email, password });
      await controlSql(
        world,
        `with strict as (
           insert into roles (tenant_id, name, permissions, requires_second_factor) values (?, ?, '{}', true) returning id)
         update users set role_id = strict.id from strict where email = ? and users.tenant_id = ?`,
        [world.acme.id, `Strict ${email}`, email, world.acme.id],
      );
    },
    'active, too many failed logins': async email => {
      await addSampleUser(world, world.acme, { email, password });
      for (let i = 0; i < 3; i++) await post('login', { email, password: 'a wrong password' });
    },
    'active, also in another company': async email => {
      await addSampleUser(world, world.acme, { email, password });
      await addSampleUser(world, world.globex, { email, password: 'another long password' });
    },
    'active in another company only': email =>
      addSampleUser(world, world.globex, { email, password }),
    disabled: async email => {
      await addSampleUser(world, world.acme, { email, password });
      await disable(email);
    },
  };

  const correction = (email: string) => ({ ...invitation(), Email: `corrected-${email}` });
  const asks: Readonly<Record<string, (email: string, id: number) => Promise<ApiResponse>>> = {
    'Log in': email => post('login', { email, password }),
    'Ask for a new password': email => post('reset-password', { email }),
    Register: email => post('register', { email, password, firstName: 'Nora', lastName: 'Newman' }),
    Invite: email => admin.post(usersPath, invitation({ Email: email })),
    Correct: (email, id) => admin.put(`${usersPath}/${id}`, correction(email)),
    'Take back': (_, id) => admin.delete(`${usersPath}/${id}`),
  };

  /** Asks, and says status and mail as the guide does: `202 invitation`. */
  async function outcome(ask: string, email: string, id: number): Promise<string> {
    await mailsSettled(world);
    const mailsBefore = mail.messages.length;

    const { status } = await asks[ask]!(email, id);
    await mailsSettled(world);

    const mails = mail.messages.slice(mailsBefore);
    const recipient = ask === 'Correct' ? `corrected-${email}` : email;
    expect(
      mails.flatMap(({ to }) => to).filter(to => to !== recipient),
      'mails to others',
    ).to.deep.equal([]);
    const names = mails.map(({ content }) => {
      const text = readable(content);
      return Object.keys(subjects).find(name => subjects[name]?.test(text)) ?? 'another mail';
    });
    return [status, ...names].join(' ');
  }

  it('the table of the guide has every state, and everything that can be asked', async () => {
    const rows = await readTable('State of the address');

    expect(rows.map(row => row['State of the address']).sort()).to.deep.equal(
      Object.keys(states).sort(),
    );
    expect(Object.keys(rows[0] ?? {}).slice(1)).to.deep.equal(Object.keys(asks));
  });

  for (const [state, bring] of Object.entries(states)) {
    it(`an address that is "${state}" gets the responses and mails of the guide, once and again`, async () => {
      const row = (await readTable('State of the address')).find(
        each => each['State of the address'] === state,
      );

      for (const ask of Object.keys(asks)) {
        const cell = row?.[ask] ?? '';
        if (cell === '–') continue;
        const [first = '', again = first] = cell.split('; then ');
        const email = newAddress();
        await bring(email);
        const id = await idOf(email);

        expect(await outcome(ask, email, id), `${ask}, once`).to.equal(first);
        expect(await outcome(ask, email, id), `${ask}, again`).to.equal(
          afterwards(state, ask) ?? again,
        );
      }
    });
  }

  /**
   * The second time, an unknown address is one that was invited or registered; the guide has
   * rows for those.
   */
  function afterwards(state: string, ask: string): string | undefined {
    const wasUnknown = state === 'unknown' || state === 'active in another company only';
    if (wasUnknown && ask === 'Invite') return '201 invitation';
    if (wasUnknown && ask === 'Register') return '202 confirmation';
    return undefined;
  }

  describe('links', () => {
    interface Opened {
      readonly email: string;
      readonly link: URL;
      readonly kind: string;
    }

    const newestLink = async (email: string): Promise<URL> => {
      await mailsSettled(world);
      const { pathname, search } = new URL(linkIn(mail.messagesTo(email).at(-1)?.content) ?? '');
      return new URL(pathname + search, world.url);
    };
    const sendLink: Readonly<Record<string, (email: string) => Promise<unknown>>> = {
      'Invitation, first password': invite,
      Confirmation: register,
      'New password': async email => {
        if ((await idOf(email)) === undefined) {
          await addSampleUser(world, world.acme, { email, password });
        }
        await post('reset-password', { email });
      },
    };
    const open = async (link: URL): Promise<string> => (await fetch(link)).text();
    const send = async ({ email, link }: Opened, chosen = 'four quiet rivers'): Promise<string> => {
      const fields =
        link.pathname === '/confirm' ? { email } : { password: chosen, repeated: chosen };
      const body = new URLSearchParams({ ...Object.fromEntries(link.searchParams), ...fields });
      return (await fetch(new URL(link.pathname, world.url), { method: 'POST', body })).text();
    };
    const openedAfter =
      (change: (opened: Opened) => Promise<unknown>) => async (opened: Opened) => {
        await change(opened);
        return open(opened.link);
      };

    const events: Readonly<Record<string, (opened: Opened) => Promise<string>>> = {
      opened: ({ link }) => open(link),
      'form sent': opened => send(opened),
      'form sent twice': async opened => {
        const [first, second] = await Promise.all([send(opened), send(opened)]);
        const third = await send(opened);
        expect(headingOf(second)).to.equal(headingOf(first));
        expect(headingOf(third)).to.equal(headingOf(first));
        return second;
      },
      'form sent again with another password': async opened => {
        await send(opened);
        const text = await send(opened, 'a password that is not set');
        expect(
          (await post('login', { email: opened.email, password: 'four quiet rivers' })).status,
        ).to.equal(200);
        return text;
      },
      'opened after it was used': openedAfter(opened => send(opened)),
      'opened too late': openedAfter(({ email }) => expireLinks(email)),
      'opened after a later mail': openedAfter(async ({ email, kind }) => {
        await sendLink[kind]?.(email);
        await mailsSettled(world);
      }),
      'opened after the account was disabled': openedAfter(({ email }) => disable(email)),
      'opened after the invitation was taken back': openedAfter(async ({ email }) =>
        expect((await admin.delete(`${usersPath}/${await idOf(email)}`)).status).to.equal(204),
      ),
      'opened after the address was corrected': openedAfter(async ({ email }) =>
        expect(
          (await admin.put(`${usersPath}/${await idOf(email)}`, correction(email))).status,
        ).to.equal(200),
      ),
      'opened for another company': ({ link }) => {
        const foreign = new URL(link);
        foreign.searchParams.set('tenant', world.globex.guid);
        return open(foreign);
      },
    };

    const headingOf = (text: string): string | undefined => /<h1>(.*)<\/h1>/.exec(text)?.[1];

    it('the table of the guide has every event, and every link', async () => {
      const rows = await readTable('What happens');

      expect(rows.map(row => row['What happens'])).to.deep.equal(Object.keys(events));
      expect(Object.keys(rows[0] ?? {}).slice(1)).to.deep.equal(Object.keys(sendLink));
    });

    for (const [event, happen] of Object.entries(events)) {
      it(`a link that is "${event}" shows what the guide says`, async () => {
        const row = (await readTable('What happens')).find(each => each['What happens'] === event);

        for (const kind of Object.keys(sendLink)) {
          const expected = row?.[kind] ?? '';
          if (expected === '–') continue;
          const email = newAddress();
          await sendLink[kind]?.(email);
          const opened = { email, kind, link: await newestLink(email) };

          expect(await happen(opened), kind).to.include(expected);
        }
      });
    }
  });
});
