import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { expect } from 'chai';
import { eventually } from '../support/eventually.ts';
import { controlSql, sql, useLogin, useWorld } from '../support/world.ts';

const path = '/api/v1/Imports?resource=Country';
const file = 'CountryCode,CountryName\nFR,France\n';

describe('Idempotency-Key of imports', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  const post = (key: string, body = file, target = path) =>
    admin.post(target, body, { 'Content-Type': 'text/csv', 'Idempotency-Key': key });
  const readImports = () => sql<{ id: string; state: string }>(world.acme, 'select id, state from imports order by id');
  const readQueue = () => controlSql(world, 'select from unfinished_imports');

  it('a file that is sent again with its key makes no second import, also when the first one has ended', async () => {
    const key = randomUUID();
    const first = await post(key);
    expect([first.status, first.headers.get('idempotency-replayed')]).to.deep.equal([202, null]);
    await eventually(async () => (await admin.get(first.headers.get('location') ?? '')).body.State === 'done');
    const second = await post(key);
    expect([second.status, second.headers.get('idempotency-replayed')]).to.deep.equal([202, 'true']);
    expect(second.body).to.deep.equal(first.body);
    expect(second.headers.get('location')).to.equal(first.headers.get('location'));
    expect(await readImports()).to.have.length(1);
    const created = await sql(world.acme, `select from audit_log where resource = 'Country' and action = 'create'`);
    expect(created).to.have.length(1);
  });

  it('a key that is used again with another file, other parameters or another path is refused with 422', async () => {
    const key = randomUUID();
    await post(key);
    const before = await readImports();
    for (const response of [
      await post(key, `${file}DE,Germany\n`),
      await post(key, file, `${path}&dryRun=true`),
      await admin.post('/api/v1/OrderStatuses', { Name: 'New' }, { 'Idempotency-Key': key }),
    ])
      expect([response.status, response.body.code]).to.deep.equal([422, 'idempotency_key_reused']);
    expect(await readImports()).to.have.length(before.length);
  });

  it('a file that is sent while another request with its key is sending one is refused with 409', async () => {
    const key = randomUUID();
    const bytes = Buffer.from(file);
    const slow = request(`${world.url}${path}`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${admin.tokens?.accessToken}`,
        'Content-Type': 'text/csv',
        'Content-Length': bytes.length,
        'Idempotency-Key': key,
      },
    });
    const status = new Promise(resolve => slow.on('response', response => resolve(response.resume().statusCode)));
    await eventually(async () => (await readQueue()).length === 0);
    slow.write(bytes.subarray(0, 10));
    await eventually(async () => (await readQueue()).length === 1);
    const refused = await post(key);
    expect([refused.status, refused.headers.get('retry-after')]).to.deep.equal([409, '2']);
    const other = await post(randomUUID());
    expect(other.status, 'another key').to.equal(202);
    slow.end(bytes.subarray(10));
    expect(await status).to.equal(202);
    expect((await post(key)).headers.get('idempotency-replayed')).to.equal('true');
  });

  it('20 equal requests at the same time with one key make one import, and all that are not refused return it', async () => {
    const key = randomUUID();
    const before = (await readImports()).length;
    const persist = () =>
      eventually(async () => {
        const response = await post(key);
        return response.status !== 409 && response;
      });
    const responses = await Promise.all(Array.from({ length: 20 }, persist));
    expect(new Set(responses.map(({ status, body }) => JSON.stringify([status, body])))).to.have.length(1);
    expect(responses[0]?.status).to.equal(202);
    await eventually(async () => (await readImports()).every(({ state }) => ['done', 'rejected'].includes(state)));
    expect(await readImports()).to.have.length(before + 1);
    await eventually(async () => (await readQueue()).length === 0);
  });
});
