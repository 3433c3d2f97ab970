import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { createProgramKey } from '../../../src/control/program-key.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, useLogin, useTwoProcesses, useWorld } from '../../support/world.ts';
import { storeKey, storeProgram } from './stored-programs.ts';

const me = '/api/v1/auth/me';
const path = '/api/v1/Programs';
const tokenPath = '/api/v1/auth/token';

const from = (address: string) => ({ 'X-Forwarded-For': address });

interface TokenResponse {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert what the service has sent
  body: any;
}

async function requestToken(
  url: string,
  { guid, key }: { guid: string; key: string },
  headers: Record<string, string>,
): Promise<TokenResponse> {
  const fields = { grant_type: 'client_credentials', client_id: guid, client_secret: key };
  const body = new URLSearchParams(fields);
  const response = await fetch(`${url}${tokenPath}`, { method: 'POST', headers, body });

  return { status: response.status, body: await response.json() };
}

describe('guesses of keys, programs and their ids', () => {
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1' });
  const admin = useLogin(world, 'acme');
  const other = useLogin(world, 'globex');

  const addProgram = async (tenant = world.acme) => {
    const program = await storeProgram(world, tenant);
    return { ...program, ...(await storeKey(world, tenant, program.id)), programId: program.id };
  };
  /** What a response discloses: everything but its own id. */
  const disclosed = ({ status, headers, body: { traceId: _, ...body } }: ApiResponse) => ({
    status,
    body,
    challenge: headers.get('www-authenticate'),
    cacheControl: headers.get('cache-control'),
  });

  it('a program or key of another tenant gets the same response as one that nobody has', async () => {
    const { programId, id: keyId } = await addProgram();
    const own = await addProgram(world.globex);
    const body = { Name: 'Till', Role: 'Member', Scope: 'All', Networks: [] };
    const calls: ((id: number, keyId: string) => Promise<ApiResponse>)[] = [
      id => other.get(`${path}/${id}`),
      id => other.put(`${path}/${id}`, body),
      id => other.put(`${path}/${id}`, { ...body, Role: 'Nobody' }),
      id => other.post(`${path}/${id}/disable`),
      id => other.post(`${path}/${id}/enable`),
      id => other.get(`${path}/${id}/keys`),
      id => other.post(`${path}/${id}/keys`, {}),
      (id, key) => other.get(`${path}/${id}/keys/${key}`),
      (id, key) => other.delete(`${path}/${id}/keys/${key}`),
      (_, key) => other.get(`${path}/${own.programId}/keys/${key}`),
      (_, key) => other.delete(`${path}/${own.programId}/keys/${key}`),
      id => other.post(`${path}/keys/revoke`, { MadeBy: id }),
    ];

    for (const call of calls) {
      const foreign = disclosed(await call(programId, keyId));
      const unknown = disclosed(await call(987_654_321, randomUUID()));
      expect(foreign, String(call)).to.deep.equal(unknown);
    }
    expect((await admin.get(`${path}/${programId}/keys`)).body).to.have.length(1);
  });

  it('a revoked key, and that of a disabled program or an isolated tenant, get the response of a key that was never made', async () => {
    const invented = () => createProgramKey().key;
    const unknown = disclosed(await world.anonymous.withToken(invented()).get(me));
    expect(unknown.body.code).to.equal('invalid_token');

    for (const [change, undo] of [
      ['update program_keys set revoked_at = now() where id = ?', ''],
      ['delete from program_keys where id = ?', ''],
      [
        `update users set disabled_at = now() from program_keys k
          where users.id = program_id and k.id = ?`,
        '',
      ],
      [
        `update tenants set isolated = true from program_keys k
          where tenants.id = tenant_id and k.id = ?`,
        'update tenants set isolated = false',
      ],
    ] as const) {
      const program = await addProgram();
      const client = world.anonymous.withToken(program.key);
      expect((await client.get(me)).status).to.equal(200);

      await controlSql(world, change, [program.id]);
      await eventually(async () => (await client.get(me)).status === 401, announcedMs);

      expect(disclosed(await client.get(me)), change).to.deep.equal(unknown);
      const here = from('192.0.2.1');
      const refused = [
        await requestToken(world.url, program, here),
        await requestToken(world.url, { guid: program.guid, key: invented() }, here),
        await requestToken(world.url, { guid: randomUUID(), key: invented() }, here),
        await requestToken(world.url, { guid: randomUUID(), key: 'guess' }, here),
      ];
      for (const response of refused) {
        expect(response).to.deep.equal({ status: 401, body: { error: 'invalid_client' } });
      }
      if (undo) await controlSql(world, undo);
    }
  });
});

describe('guesses of keys from one address', () => {
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1', RATE_LIMIT_GLOBAL: '40/60s' });

  it('a client that guesses keys is refused with 429 after as many requests as it may send, and programs elsewhere go on', async () => {
    const program = await storeProgram(world, world.acme);
    const { key } = await storeKey(world, world.acme, program.id);
    const [guesser, client] = [from('192.0.2.66'), from('192.0.2.1')];

    const statuses: number[] = [];
    for (let i = 0; i < 20; i++) {
      const guess = createProgramKey().key;
      statuses.push((await world.anonymous.withToken(guess).get(me, guesser)).status);
      const token = await requestToken(world.url, { guid: program.guid, key: guess }, guesser);
      statuses.push(token.status);
    }
    const limited = await world.anonymous.withToken(createProgramKey().key).get(me, guesser);

    expect(new Set(statuses)).to.deep.equal(new Set([401]));
    expect(limited.status).to.equal(429);
    expect((await world.anonymous.withToken(key).get(me, client)).status).to.equal(200);
    expect((await requestToken(world.url, { ...program, key }, client)).status).to.equal(200);
  });
});

describe('many programs that start at once', () => {
  const defaults = {
    RATE_LIMIT_GLOBAL: '500/60s',
    RATE_LIMIT_LOGIN: '5/15m',
    RATE_LIMIT_FAILURES: '100/24h',
    RATE_LIMIT_TOKEN: '5/60s',
    RATE_LIMIT_PEOPLE: '1000/24h',
  };
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1', ...defaults });
  const admin = useLogin(world, 'acme');
  const urls = useTwoProcesses(world);

  it('25 programs from five addresses all get a token and use it and their key, in both processes, and end no session', async () => {
    const programs: { guid: string; key: string; headers: Record<string, string> }[] = [];
    for (let i = 0; i < 25; i++) {
      const tenant = i % 2 === 0 ? world.acme : world.globex;
      const program = await storeProgram(world, tenant);
      const { key } = await storeKey(world, tenant, program.id);
      programs.push({ ...program, key, headers: from(`192.0.2.${10 + (i % 5)}`) });
    }
    const read = (client: Client, headers: Record<string, string>) =>
      Promise.all(urls.map(async url => (await client.at(url).get(me, headers)).status));

    const starts = programs.map(async (program, i) => {
      const { headers, key } = program;
      const { status, body } = await requestToken(urls[i % 2] ?? '', program, headers);
      const clients = [key, body.access_token].map(token => world.anonymous.withToken(token));

      return [status, ...(await Promise.all(clients.map(each => read(each, headers)))).flat()];
    });

    expect(new Set((await Promise.all(starts)).flat())).to.deep.equal(new Set([200]));
    expect(await read(admin, from('192.0.2.99'))).to.deep.equal([200, 200]);
    expect(
      await controlSql(world, 'select from sessions where revoked_at is not null'),
    ).to.deep.equal([]);
  });
});
