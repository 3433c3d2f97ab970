import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { useEach } from '../../support/use.ts';
import { createWorld } from '../../support/world.ts';
import { startReceiver, verify } from './receiver.ts';

interface Made {
  Id: number;
  Secret: string;
}

describe('webhooks of a tenant whose data is exchanged', () => {
  const receiver = useEach(startReceiver);
  const world = useEach(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));
  const folder = useServerFolder('exchange-archives');
  let environment: Record<string, string>;
  let acme: Client;
  let globex: Client;
  let gone: Made;
  let disabled: Made;
  let rotated: Made;

  const tenant = (...words: string[]) => succeed(environment, 'tenant', words);
  const make = async (client: Client, path: string): Promise<Made> => {
    const { status, body } = await client.post('/api/v1/Webhooks', {
      Url: receiver.url(path),
      Payload: 'record',
      Resources: ['Currency'],
    });
    expect(status).to.equal(201);
    return body;
  };
  const addCurrency = async (client: Client, Code: string): Promise<void> => {
    expect((await client.post('/api/v1/Currency', { Code, Name: Code })).status).to.equal(201);
  };
  const arrived = (path: string, code: string) =>
    receiver
      .at(path)
      .find(({ body }) => (body.data.Record as { Code: string } | undefined)?.Code === code);
  const webhooks = async (client: Client): Promise<string[]> =>
    (await client.get('/api/v1/Webhooks')).body.map(
      ({ Url, IsEnabled }: { Url: string; IsEnabled: boolean }) =>
        `${new URL(Url).pathname} ${IsEnabled}`,
    );
  const deliveries = async ({ Id }: Made): Promise<number> =>
    (await acme.get(`/api/v1/Webhooks/${Id}/Deliveries`)).body.length;

  beforeEach(async () => {
    const target = await mkdtemp(join(folder, 'target-'));
    environment = { ...world.environment, ...(await backupSettings(target)) };
    acme = await world.login(world.acme);
    globex = await world.login(world.globex);
    gone = await make(acme, '/gone');
    disabled = await make(acme, '/disabled');
    rotated = await make(acme, '/rotated');
    await make(globex, '/globex');
    await addCurrency(acme, 'EUR');
    for (const path of ['/gone', '/disabled', '/rotated']) {
      await eventually(() => arrived(path, 'EUR'));
    }
    await eventually(async () => (await deliveries(rotated)) > 0);
    await backUp(environment);
  });

  it('restore swap and restore back leave receivers and secrets as they are now: none that was removed comes back', async () => {
    // given: since the archive, one is deleted, one disabled, one has a new secret, and one is
    // new
    expect((await acme.delete(`/api/v1/Webhooks/${gone.Id}`)).status).to.equal(204);
    const { body: stored } = await acme.get(`/api/v1/Webhooks/${disabled.Id}`);
    const { Url, Resources } = stored;
    expect(
      (await acme.put(`/api/v1/Webhooks/${disabled.Id}`, { Url, Resources, IsEnabled: false }))
        .status,
    ).to.equal(200);

    const { body: secret } = await acme.post(`/api/v1/Webhooks/${rotated.Id}/rotate`);
    const added = await make(acme, '/added');
    const counted = await deliveries(rotated);
    const before = receiver.messages.length;
    const current = ['/disabled false', '/rotated true', '/added true'];

    for (const [index, command] of ['swap', 'back', 'swap'].entries()) {
      // when
      if (index === 0) await tenant('restore', 'acme', '--archive', 'latest');
      await tenant('restore', command, 'acme', '--yes');

      // then
      expect(await webhooks(acme), command).to.have.members(current);
      expect(await deliveries(rotated), command).to.be.at.least(counted);

      const code = `AA${'ABC'[index]}`;
      await addCurrency(acme, code);
      const [old, fresh] = [
        await eventually(() => arrived('/rotated', code)),
        await eventually(() => arrived('/added', code)),
      ];

      verify(secret.Secret, old);
      verify(added.Secret, fresh);
    }

    const others = receiver.messages
      .slice(before)
      .filter(({ path }) => ['/gone', '/disabled'].includes(path));
    expect(others).to.deep.equal([]);
    expect(await webhooks(globex)).to.deep.equal(['/globex true']);
    expect(receiver.at('/globex')).to.deep.equal([]);

    // and: what is made next has a number of its own
    const next = await make(acme, '/next');
    expect(next.Id).to.be.above(added.Id);
  });

  it('a change that had not arrived when a swap replaced its data arrives after restore back', async () => {
    // given: the receiver fails, and the data that has the change is replaced
    await tenant('restore', 'acme', '--archive', 'latest');
    await tenant('restore', 'swap', 'acme', '--yes');
    await addCurrency(acme, 'BBA');
    await eventually(() => arrived('/rotated', 'BBA')); // after the gap of the swap
    receiver.respond('/rotated', response => response.writeHead(500).end());
    await addCurrency(acme, 'BBB');
    await eventually(() => arrived('/rotated', 'BBB'));
    await tenant('restore', 'back', 'acme', '--yes');
    receiver.respond('/rotated', response => response.writeHead(204).end());
    world.clock.offsetSeconds += 120;
    await addCurrency(acme, 'BBC');
    await eventually(() => arrived('/rotated', 'BBC'));
    const before = receiver.arrivals.length;

    // when
    await tenant('restore', 'swap', 'acme', '--yes');

    // then
    await eventually(() =>
      receiver.arrivals
        .slice(before)
        .some(
          ({ path, body }) =>
            path === '/rotated' && (body.data.Record as { Code?: string })?.Code === 'BBB',
        ),
    );
  });
});
