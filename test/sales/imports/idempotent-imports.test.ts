import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

const path = '/api/v1/Imports?resource=Country';
const file = 'CountryCode,CountryName\nFR,France\n';

describe('Idempotency-Key of imports', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  const post = (key: string, body = file, target = path, client = admin) =>
    client.post(target, body, { 'Content-Type': 'text/csv', 'Idempotency-Key': key });
  const readCreated = () =>
    sql(world.acme, `select from audit_log where resource = 'Country' and action = 'create'`);

  it('a file that is sent again with its key makes no second import, and returns the report of the first', async () => {
    const key = randomUUID();
    const before = await readCreated();
    const first = await post(key);
    expect(first.status).to.equal(200);
    expect(first.body).to.include({ Applied: true, Created: 1 });
    expect(first.headers.get('idempotency-replayed')).to.equal(null);

    const second = await post(key);

    expect(second.status).to.equal(200);
    expect(second.headers.get('idempotency-replayed')).to.equal('true');
    expect(second.body).to.deep.equal(first.body);
    expect(await readCreated()).to.have.length(before.length + 1);
  });

  it('a report that an earlier build has stored, without warnings, is returned with none', async () => {
    const key = randomUUID();
    const body = 'CountryCode,CountryName\nNL,Netherlands\n';
    const first = await post(key, body);
    await sql(
      world.acme,
      `update idempotency_keys set rows = replace(rows, ',\\"Warnings\\":[]', '') where key = $1`,
      [key],
    );
    const stored = await sql(world.acme, 'select rows from idempotency_keys where key = $1', [key]);
    expect(JSON.stringify(stored)).to.include('Created').and.not.include('Warnings');

    const again = await post(key, body);

    expect(again.headers.get('idempotency-replayed')).to.equal('true');
    expect(again.body).to.deep.equal(first.body);
  });

  it('the key of a user of another tenant is another key', async () => {
    const key = randomUUID();
    await post(key, 'CountryCode,CountryName\nPT,Portugal\n');
    const stranger = await world.login(world.globex);

    const { headers, body } = await post(key, file, path, stranger);

    expect(headers.get('idempotency-replayed')).to.equal(null);
    expect(body).to.include({ Applied: true, Created: 1 });
  });

  it('a key that is used again with another file, other parameters or another path is refused with 422', async () => {
    const key = randomUUID();
    const body = 'CountryCode,CountryName\nES,Spain\n';
    await post(key, body);
    const before = await readCreated();

    for (const response of [
      await post(key, `${body}DE,Germany\n`),
      await post(key, body, `${path}&mode=upsert`),
      await admin.post('/api/v1/OrderStatuses', { Name: 'New' }, { 'Idempotency-Key': key }),
    ]) {
      expect(response.status).to.equal(422);
      expect(response.body.code).to.equal('idempotency_key_reused');
    }
    expect(await readCreated()).to.have.length(before.length);
  });

  it('a dry run and a file that is refused store no key: the corrected file is sent with the same one', async () => {
    const key = randomUUID();
    const corrected = 'CountryCode,CountryName\nIT,Italy\n';

    const tried = await post(key, corrected, `${path}&dryRun=true`);
    expect(tried.body).to.include({ Applied: false, Created: 1 });
    const refused = await post(key, 'CountryCode,CountryName\nIT,\n');
    expect(refused.body).to.include({ Applied: false, Refused: 1 });

    const applied = await post(key, corrected);
    expect(applied.headers.get('idempotency-replayed')).to.equal(null);
    expect(applied.body).to.include({ Applied: true, Created: 1 });
  });

  it('20 equal requests at the same time with one key make one import, and all that are not refused return it', async () => {
    const key = randomUUID();
    const body = 'CountryCode,CountryName\nGR,Greece\n';
    const before = (await readCreated()).length;
    const persist = () =>
      eventually(async () => {
        const response = await post(key, body);
        return response.status === 200 && response;
      });

    const responses = await Promise.all(Array.from({ length: 20 }, persist));

    expect(new Set(responses.map(response => JSON.stringify(response.body)))).to.have.length(1);
    expect(responses[0]?.body).to.include({ Applied: true, Created: 1 });
    expect(await readCreated()).to.have.length(before + 1);
  });
});
