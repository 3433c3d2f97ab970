import { expect } from 'chai';
import { startMailServer } from '../../support/mail-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, useLogin } from '../../support/world.ts';
import { withDrainedServer } from '../auth/drained-server.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import { expectProblem, invitation, newAddress, usersPath } from './people-world.ts';

const password = 'correct horse battery staple';

describe('links in mails to a user who is disabled or enabled', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url, RATE_LIMIT_ACCOUNT: '1000/1m' }));
  const admin = useLogin(world, 'acme');

  before(async () => {
    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.acme.id,
    ]);
  });

  const post = (path: string, body: object, tenant = world.acme) =>
    world.anonymous.post(`/api/v1/auth/${path}`, body, { 'X-Tenant': tenant.guid });
  const useToken = (token: string, tenant = world.acme) =>
    post('reset-password', { token, newPassword: password }, tenant);
  const idOf = async (email: string): Promise<number> =>
    (await admin.get(`${usersPath}?filter[Email]=${email}`)).body[0].Id;
  const change = async (id: number, action: 'disable' | 'enable'): Promise<void> => {
    expect((await admin.post(`${usersPath}/${id}/${action}`)).status).to.equal(200);
  };
  const byCommand = async (email: string, action: 'disable' | 'enable'): Promise<void> => {
    const { code, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['user', action, 'acme', email, ...(action === 'disable' ? ['--yes'] : [])],
      world.environment,
    );
    expect(code, stderr).to.equal(0);
  };

  /**
   * Sends one link of each kind, each to a user of its own.
   * @returns how each link is used, by its kind
   */
  async function sendLinks() {
    const [invited, registered] = [newAddress(), newAddress()];
    await admin.post(usersPath, invitation({ Email: invited }));
    await post('register', { email: registered, password, firstName: 'Nora', lastName: 'Newman' });
    const { email: known } = await addSampleUser(world, world.acme);
    await post('reset-password', { email: known });
    const tokens = {
      invited: await mail.waitForToken(invited),
      registered: await mail.waitForToken(registered),
    };
    const reset = await mail.waitForToken(known);
    return {
      invitation: { email: invited, use: () => useToken(tokens.invited) },
      reset: { email: known, use: () => useToken(reset) },
      confirmation: { email: registered, use: () => post('confirm', { token: tokens.registered }) },
    };
  }

  const sendFirst = async (sent: { Email: string }): Promise<void> => {
    expect((await admin.post(usersPath, sent)).status).to.equal(201);
    await mail.waitForToken(sent.Email);
  };
  /**
   * Invites by a server of its own. `work` runs after the mail has arrived, and before the mail
   * server accepts it.
   */
  const whileSending = (
    sent: { Email: string },
    count: number,
    work: () => Promise<void>,
  ): Promise<void> =>
    withDrainedServer(world, {}, async ({ url }) => {
      const gate = mail.hold(sent.Email);
      expect((await admin.at(url).post(usersPath, sent)).status).to.equal(201);
      await mail.waitForToken(sent.Email, count);
      await work();
      gate.release();
    });

  it('disabling a user makes every link void, and enabling the user makes none valid again', async () => {
    for (const [kind, { email, use }] of Object.entries(await sendLinks())) {
      const id = await idOf(email);
      await change(id, 'disable');
      expectProblem(await use(), 400, 'validation_failed');
      await change(id, 'enable');
      expect((await use()).status, kind).to.equal(400);
    }
  });

  it('a link that was stored while its user was disabled is refused then, and void after the user is enabled', async () => {
    for (const byOperator of [false, true]) {
      for (const [kind, { email, use }] of Object.entries(await sendLinks())) {
        if (byOperator && kind !== 'invitation') continue;

        const id = await idOf(email);
        await controlSql(world, 'update users set disabled_at = now() where id = ?', [id]);
        expect((await use()).status, `${kind}, disabled`).to.equal(400);

        await (byOperator ? byCommand(email, 'enable') : change(id, 'enable'));
        expect((await use()).status, `${kind}, enabled`).to.equal(400);
      }
    }
  });

  it('the link of an invitation is void when its user was disabled and enabled while the mail was being sent', async () => {
    for (const byOperator of [false, true]) {
      for (const invitations of [1, 2]) {
        const sent = invitation();
        if (invitations === 2) await sendFirst(sent);

        await whileSending(sent, invitations, async () => {
          for (const action of ['disable', 'enable'] as const) {
            await (byOperator
              ? byCommand(sent.Email, action)
              : change(await idOf(sent.Email), action));
          }
        });

        for (let i = 1; i <= invitations; i++) {
          expect(
            (await useToken(await mail.waitForToken(sent.Email, i))).status,
            `mail ${i}`,
          ).to.equal(400);
        }

        expect((await admin.post(usersPath, sent)).status).to.equal(201);
        expect(
          (await useToken(await mail.waitForToken(sent.Email, invitations + 1))).status,
        ).to.equal(204);
      }
    }
  });

  it('an invitation after a user was enabled stays valid when the mail of an earlier one is accepted later', async () => {
    const sent = invitation();
    await sendFirst(sent);

    await whileSending(sent, 2, async () => {
      await change(await idOf(sent.Email), 'disable');
      await change(await idOf(sent.Email), 'enable');
      await admin.post(usersPath, sent);
      await mail.waitForToken(sent.Email, 3);
    });

    expect(
      (await useToken(await mail.waitForToken(sent.Email, 2))).status,
      'the earlier one',
    ).to.equal(400);
    expect(
      (await useToken(await mail.waitForToken(sent.Email, 3))).status,
      'the later one',
    ).to.equal(204);
  });
});
