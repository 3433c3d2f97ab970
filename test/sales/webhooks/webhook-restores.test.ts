import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';
import { startReceiver, verify } from './receiver.ts';

describe('webhooks of restored data and copies', () => {
  const receiver = use(startReceiver);
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));
  const folder = useServerFolder('webhook-archives');
  let admin: Client;
  let secret: string;

  const tenant = async (...words: string[]) => {
    const environment = { ...world.environment, ...(await backupSettings(folder)) };
    const { code, stderr } = await runCommand('scripts/tenant.ts', words, environment);
    expect(code, `${words.join(' ')}: ${stderr}`).to.equal(0);
  };
  const addCurrency = async (Code: string): Promise<void> => {
    expect((await admin.post('/api/v1/Currency', { Code, Name: Code })).status).to.equal(201);
    await eventually(() => received().includes(Code));
  };
  const received = () =>
    receiver
      .at('/hook')
      .flatMap(({ body }) => (body.data.Record as { Code: string } | undefined)?.Code ?? []);
  const now = async (): Promise<string> =>
    (await admin.get('/api/v1/Changes?after=now')).headers.get('next-cursor') ?? '';
  const codeAfter = async (cursor: string) =>
    (await admin.get(`/api/v1/Changes?after=${cursor}`)).body.code;
  /** Waits, because a transaction of another test may hold changes back for a moment. */
  const expectCurrencies = (cursor: string, codes: string[]) =>
    eventually(async () => {
      const { body } = await admin.get(`/api/v1/Changes?after=${cursor}&include=record`);
      expect(body.map(({ Record }: { Record: { Code: string } }) => Record.Code)).to.deep.equal(
        codes,
      );
      return true;
    });
  const gaps = () => receiver.at('/hook').filter(({ body }) => body.type === 'webhook.gap');

  before(async () => {
    admin = await world.login(world.acme);
    const made = await admin.post('/api/v1/Webhooks', {
      Url: receiver.url('/hook'),
      Payload: 'record',
      Resources: ['Currency'],
    });
    secret = made.body.Secret;
  });

  it('after restore swap and back, cursors get 410, and each endpoint webhook.gap, also if it fails at first, and what follows', async () => {
    const [earlier, known] = [gaps().length, received().length];
    await addCurrency('EUR');
    const { body: webhooks } = await admin.get('/api/v1/Webhooks');
    await eventually(
      async () =>
        (await admin.get(`/api/v1/Webhooks/${webhooks[0].Id}/Deliveries`)).body.length > 0,
    );

    await tenant('backup', 'init');
    await tenant('backup', 'run', '--all');
    const archivedAt = new Date().toISOString();

    await addCurrency('CHF');
    const before = await now();

    await tenant('restore', 'acme', '--archive', 'latest');
    await tenant('restore', 'swap', 'acme', '--yes');

    const [gap] = await eventually(() => gaps().length > earlier && gaps().slice(earlier));
    verify(secret, gap!);
    const { From, To } = gap!.body.data as { From: string; To: string };
    expect(From < archivedAt && archivedAt < To, `${From} ${archivedAt} ${To}`).to.equal(true);

    expect(await codeAfter(before)).to.equal('cursor_expired');
    const restored = await now();
    await addCurrency('NOK');
    await expectCurrencies(restored, ['NOK']);

    const history = (await admin.get('/api/v1/Changes?limit=1000')).body;
    await expectCurrencies(history.at(-2).Id, ['NOK']);
    expect(received().filter(code => code === 'EUR')).to.have.length(1);

    let failures = 0;
    receiver.respond('/hook', response => response.writeHead(failures++ === 0 ? 500 : 204).end());
    await tenant('restore', 'back', 'acme', '--yes');
    await eventually(() => failures > 0);

    for (const cursor of [restored, before]) {
      expect(await codeAfter(cursor)).to.equal('cursor_expired');
    }

    await addCurrency('SEK');
    expect(gaps().map(({ id }) => id)).to.have.length(earlier + 3);
    const types = receiver.at('/hook').map(({ body }) => body.type);
    expect(types.slice(-3), 'the failed gap, the gap, and what follows').to.deep.equal([
      'webhook.gap',
      'webhook.gap',
      'currency.created',
    ]);
    expect(received().slice(known)).to.deep.equal(['EUR', 'CHF', 'NOK', 'SEK']);
  });

  it('a clone sends nothing: it is isolated, and its endpoints need a new secret', async () => {
    await tenant('clone', 'acme', 'acme-copy', '--login', world.acme.admin.email);
    const before = receiver.messages.length;

    const [clone] = await controlSql<{ guid: string }>(
      world,
      `select guid from tenants where slug = 'acme-copy'`,
    );
    const client = await world.login({ ...world.acme, guid: clone!.guid });
    expect((await client.post('/api/v1/Currency', { Code: 'JPY', Name: 'Yen' })).status).to.equal(
      201,
    );

    const { body: copied } = await client.get('/api/v1/Webhooks');
    expect(copied).to.have.length(1);
    expect((await client.post(`/api/v1/Webhooks/${copied[0].Id}/test`)).status).to.equal(202);

    await addCurrency('USD');
    expect(
      receiver.messages
        .slice(before)
        .map(({ body }) => (body.data.Record as { Code: string }).Code),
    ).to.deep.equal(['USD']);

    // Its guid has no trusted receiver: an attempt would have failed with this error.
    const { body: attempts } = await client.get(`/api/v1/Webhooks/${copied[0].Id}/Deliveries`);
    expect(JSON.stringify(attempts)).not.to.include('refused address');
  });

  it('after a restore of the control database that does not know the webhooks, a new secret is all that they need', async () => {
    await controlSql(world, 'delete from webhook_tenants');
    const { code, stderr } = await runCommand(
      'scripts/control.ts',
      ['after-restore', '--yes'],
      world.environment,
    );
    expect(code, stderr).to.equal(0);

    // The service knows then that the sessions and the keys have ended.
    await eventually(async () => (await admin.get('/api/v1/Webhooks')).status === 401);
    admin = await eventually(() => world.login(world.acme));
    const [{ Id }] = (await admin.get('/api/v1/Webhooks')).body;
    expect((await admin.post('/api/v1/Currency', { Code: 'PLN', Name: 'Zloty' })).status).to.equal(
      201,
    );

    const lastError = async () =>
      (await admin.get(`/api/v1/Webhooks/${Id}/Deliveries`)).body[0]?.Error;
    await eventually(async () => (await lastError()) === 'secret');

    const rotated = await admin.post(`/api/v1/Webhooks/${Id}/rotate`);
    world.clock.offsetSeconds += 6;
    await eventually(() => received().includes('PLN'));
    secret = rotated.body.Secret;
    verify(secret, receiver.at('/hook').at(-1)!);
    world.clock.offsetSeconds -= 6;
  });
});
