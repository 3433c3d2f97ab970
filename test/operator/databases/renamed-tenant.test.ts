import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startReceiver } from '../../sales/webhooks/receiver.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { cursorOfNow } from '../../support/settle.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { use, useEach, useFolder } from '../../support/use.ts';

const path = '/api/v1/EntityStatus';

describe('a tenant that gets another slug', () => {
  const mail = use(startMailServer);
  const receiver = use(startReceiver);
  const servers = useEach(() =>
    TwoServers.start({ SMTP_URL: mail.url, WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }),
  );
  const folder = useFolder();

  it('its webhooks and its feed go on, also over moves before and after', async () => {
    const { world } = servers;
    const admin = await world.login(world.acme);
    const create = async (Title: string): Promise<string> => {
      const { status, body } = await admin.post(path, { Title });
      expect(status, Title).to.equal(201);
      return String(body.Id);
    };
    const hook = { Url: receiver.url('/hook'), Resources: ['EntityStatus'] };
    expect((await admin.post('/api/v1/Webhooks', hook)).status).to.equal(201);
    const cursor = await cursorOfNow(admin, world.acme);

    const created = [await create('before')];
    await servers.move('acme', '--to', 'second');
    await servers.runWell(['edit', 'acme', '--slug', 'acme-two']);
    created.push(await create('after the new slug'));
    await servers.move('acme', '--to', 'default');
    created.push(await create('after a move by the alias'));
    await servers.move('acme-two', '--back');
    created.push(await create('after a move back by the slug'));

    const keys = () => receiver.at('/hook').map(({ body }) => body.data.Key);
    await eventually(() => keys().length >= created.length);
    expect(keys()).to.deep.equal(created);
    const { body } = await admin.get(`/api/v1/Changes?after=${cursor}`);
    expect(body.map(({ Key }: { Key: string }) => Key)).to.deep.equal(created);
    expect(await servers.serverOf('acme-two')).to.equal('second');
    const listed = JSON.parse(await servers.runWell(['webhooks', 'acme', '--json']));
    expect(listed).to.have.length(1);
  });

  it('a link in a mail from before names it by its guid, and works afterwards', async () => {
    const { world } = servers;
    const { acme, anonymous } = world;
    const { email } = acme.admin;
    await servers.runWell(['edit', 'acme', '--slug', 'acme-two']);
    const asked = await anonymous.post(
      '/api/v1/auth/reset-password',
      { email },
      { 'X-Tenant': 'acme-two' },
    );
    expect(asked.status).to.equal(202);
    const token = await mail.waitForToken(email);
    expect(mail.messagesTo(email)[0]?.content.replaceAll('=\r\n', '')).to.include(acme.guid);

    await servers.runWell(['edit', 'acme-two', '--slug', 'acme-three', '--alias-days', '0']);
    const changed = await anonymous.post(
      '/api/v1/auth/reset-password',
      { token, newPassword: 'a password of the test' },
      { 'X-Tenant': acme.guid },
    );

    expect(changed.status).to.equal(204);
    await world.login(acme, { email, password: 'a password of the test' });
    const byFormer = await anonymous.post(
      '/api/v1/auth/reset-password',
      { email },
      { 'X-Tenant': 'acme-two' },
    );
    expect(byFormer.status).to.equal(403);
  });

  it('a manifest with an alias or a reserved slug changes no tenant, alone and in a folder', async () => {
    await servers.runWell(['edit', 'acme', '--slug', 'acme-two']);
    await servers.runWell(['edit', 'acme-two', '--slug', 'acme-three', '--alias-days', '0']);
    await servers.runWell(['edit', 'acme-three', '--slug', 'acme-four']);
    const manifests = join(folder, 'manifests');
    await mkdir(manifests);
    for (const slug of ['acme-three', 'acme-two', 'initech']) {
      const admin = { email: `a@${slug}.test`, firstName: 'A', lastName: 'B' };
      await writeFile(join(manifests, `${slug}.json`), JSON.stringify({ slug, name: slug, admin }));
    }
    const provision = (...args: string[]) => servers.run(['provision', '--file', ...args]);

    const [alias, reserved] = [
      await provision(join(manifests, 'acme-three.json')),
      await provision(join(manifests, 'acme-two.json')),
    ];
    const planned = await provision(manifests, '--dry-run');
    const all = await provision(manifests);

    expect(alias.code, alias.stderr).to.equal(0);
    expect(alias.stdout).to.include('acme-four exists already: nothing was changed');
    expect(reserved.code).to.equal(1);
    expect(reserved.stderr).to.match(/acme-two was the slug of .* It is reserved/);
    expect(planned.code).to.equal(1);
    expect(planned.stdout).to.match(/acme-two\.json .*failed/);
    expect(all.code).to.equal(1);
    expect(all.stdout).to.include('acme-two.json: acme-two was the slug of');
    expect(all.stdout).to.include('3 manifests, 1 failed');
    const listed: { slug: string; guid: string }[] = JSON.parse(
      await servers.runWell(['list', '--json']),
    );
    expect(listed.map(({ slug }) => slug)).to.have.members(['acme-four', 'globex', 'initech']);
    expect(listed.find(({ slug }) => slug === 'acme-four')?.guid).to.equal(servers.world.acme.guid);
  });
});

describe('a tenant that is to get another slug while it is moved', () => {
  const receiver = use(startReceiver);
  const servers = use(() => TwoServers.start({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));

  /** Returns a function that creates a record, as soon as the tenant is served. */
  const creator =
    (client: Client) =>
    async (Title: string): Promise<string> => {
      const { status, body } = await eventually(async () => {
        const response = await client.post(path, { Title });
        return response.status !== 503 && response;
      }, 60_000);
      expect(status, JSON.stringify(body)).to.equal(201);
      return String(body.Id);
    };

  for (const [slug, step, signal] of [
    ['acme', 'copy ahead', 'SIGSTOP'],
    ['globex', 'copy changes', 'SIGKILL'],
  ] as const) {
    const how = signal === 'SIGKILL' ? 'killed and undone' : 'paused';

    it(`keeps its slug until the move, which is ${how} at the step ${step}, has ended, and a webhook lacks and repeats nothing`, async () => {
      const { world } = servers;
      const client = await world.login(world[slug]);
      const create = creator(client);
      const hook = { Url: receiver.url(`/${slug}`), Resources: ['EntityStatus'] };
      expect((await client.post('/api/v1/Webhooks', hook)).status).to.equal(201);
      const cursor = await cursorOfNow(client, world[slug]);
      const created = [await create('before')];

      const moving = await servers.startMove(step, slug, '--to', 'second');
      moving.process.kill(signal);
      const present = `${slug}-now`;
      const refused = await servers.run(['edit', slug, '--slug', present]);
      moving.process.kill('SIGCONT');
      const { code, stderr } = await moving.ended;
      if (signal === 'SIGKILL') await servers.runWell(['databases', 'prune', slug]);
      else expect(code, stderr).to.equal(0);
      await servers.runWell(['edit', slug, '--slug', present]);
      if (signal === 'SIGKILL') await servers.move(present, '--to', 'second');
      created.push(await create('after'));

      expect(refused.code).to.equal(1);
      expect(refused.stderr).to.include(`bin/backoffice databases prune ${slug}`);
      expect(await servers.serverOf(present)).to.equal('second');
      const keys = () => receiver.at(`/${slug}`).map(({ body }) => body.data.Key);
      await eventually(() => keys().length >= created.length);
      expect(keys()).to.deep.equal(created);
      const { body } = await client.get(`/api/v1/Changes?after=${cursor}`);
      expect(body.map(({ Key }: { Key: string }) => Key)).to.deep.equal(created);
      const logged = JSON.parse(await servers.runWell(['logs', present, '--json'])).items;
      expect(logged.map(({ command }: { command: string }) => command)).to.include('move');
    });
  }
});
