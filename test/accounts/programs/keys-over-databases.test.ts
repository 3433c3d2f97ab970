import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import type { Client } from '../../support/client.ts';
import { unlessLate } from '../../support/late-refusals.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { laterObject, use } from '../../support/use.ts';
import { useLogin, useTwoProcesses } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('keys of programs while the database of their tenant changes', () => {
  const servers = use(() => TwoServers.start({ ACQUIRE_TIMEOUT_MS: '9000' }));
  const world = laterObject(() => servers.world);
  const admin = useLogin(world, 'acme');
  const urls = useTwoProcesses(world);
  const folder = useServerFolder('archives');

  /** Adds a program with a key, and returns clients with the key and with an access token. */
  async function addProgram() {
    const body = { Name: 'Till', Role: 'Administrator', Scope: 'All' };
    const { Id, Guid } = (await admin.post('/api/v1/Programs', body)).body;
    const { Key } = (await admin.post(`/api/v1/Programs/${Id}/keys`, {})).body;
    const response = await fetch(`${world.url}/api/v1/auth/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'client_credentials',
        client_id: Guid,
        client_secret: Key,
      }),
    });
    const { access_token: token } = (await response.json()) as { access_token: string };

    return {
      id: Id,
      guid: Guid,
      clients: [Key, token].map(each => world.anonymous.withToken(each)),
    };
  }
  const inBoth = (clients: readonly Client[]): Client[] =>
    clients.flatMap(client => urls.map(url => client.at(url)));
  /** Writes and reads with each client, one request after another, until `work` has ended. */
  async function during(clients: readonly Client[], work: () => Promise<unknown>) {
    const statuses = new Set<number>();
    let isOver = false;
    const write = async (client: Client): Promise<void> => {
      do {
        const created = await unlessLate(() => client.post(path, { Title: 'New' }));
        const read = await unlessLate(() => client.get(path));
        for (const response of [created, read]) if (response) statuses.add(response.status);
      } while (!isOver);
    };
    const writing = Promise.all(inBoth(clients).map(write));
    await work().finally(() => (isOver = true));
    await writing;

    return [...statuses].sort();
  }
  /** Expects that each client changes data, and that the audit log names the program. */
  async function expectAtWork({ clients, guid }: { clients: Client[]; guid: string }) {
    for (const client of inBoth(clients)) {
      const { status, body } = await client.post(path, { Title: 'After it' });
      expect(status, JSON.stringify(body)).to.equal(201);
      const entries = await client.get(`/api/v1/AuditLog?resource=EntityStatus&key=${body.Id}`);
      expect(entries.body.map((entry: { UserGuid: string }) => entry.UserGuid)).to.deep.equal([
        guid,
      ]);
    }
  }

  it('a key and its access token go on in both processes while their tenant is moved, and afterwards', async () => {
    const program = await addProgram();

    const statuses = await during(program.clients, () => servers.move('acme', '--to', 'second'));

    expect(statuses).to.deep.equal([200, 201]);
    expect(await servers.serverOf()).to.equal('second');
    await expectAtWork(program);
  });

  it('a key goes on with the restored data of its tenant, and one that was revoked since the archive stays revoked', async () => {
    const environment = {
      ...world.environment,
      ...(await backupSettings(await mkdtemp(join(folder, 'target-')))),
    };
    const kept = await addProgram();
    const revoked = await addProgram();
    await backUp(environment);
    const makeUse = async () => Promise.all(revoked.clients.map(client => client.get(path)));
    expect((await makeUse()).map(({ status }) => status)).to.deep.equal([200, 200]);
    const [key] = (await admin.get(`/api/v1/Programs/${revoked.id}/keys`)).body;
    await admin.delete(`/api/v1/Programs/${revoked.id}/keys/${key.Id}`);

    await succeed(environment, 'tenant', ['restore', 'acme', '--archive', 'latest']);
    await succeed(environment, 'tenant', ['restore', 'swap', 'acme', '--yes']);

    await expectAtWork(kept);
    for (const client of inBoth(revoked.clients)) {
      expect((await client.get(path)).body.code).to.equal('invalid_token');
    }
  });
});
