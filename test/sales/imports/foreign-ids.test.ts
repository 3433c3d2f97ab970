import { expect } from 'chai';
import { pascalCase } from '../../../src/lib/runtime/casing.ts';
import { resources } from '../../../src/sales/resources/index.ts';
import type { Client } from '../../support/client.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

const csv = { 'Content-Type': 'text/csv' };

describe('ids in imported files', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  const send = (client: Client, query: string, file: string) =>
    client.post(`/api/v1/Imports?resource=${query}`, file, csv);

  /** Sends a file and returns the report. */
  async function importFile(client: Client, query: string, file: string) {
    const { status, body } = await send(client, query, file);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body;
  }

  const exportOf = async (client: Client, path: string): Promise<string> =>
    (await client.get(path, { Accept: 'text/csv' })).body;

  /** Every record of a tenant that a foreign file could change. */
  const recordsOf = async (client: Client) =>
    Promise.all(
      ['Entities', 'SystemOptions', 'Promotions'].map(
        async name => (await client.get(`/api/v1/${name}`)).body,
      ),
    );

  before('two tenants give the same ids to different records', async () => {
    for (const [client, code, name] of [
      [acme, 'EUR', 'Of acme'],
      [globex, 'JPY', 'Of globex'],
    ] as const) {
      await client.post('/api/v1/Currency', { Code: code, Name: name });
      await client.post('/api/v1/Entities', {
        Name: name,
        EntityType: 'customer',
        StatusId: 1,
        CurrencyId: 1,
      });
      await client.post('/api/v1/SystemOptions', { SystemOptionTypeId: 1, Value: name });
      await client.post('/api/v1/Promotions', {
        PromoCode: 'TEN',
        Name: name,
        DiscountType: 'Amount',
        DiscountValue: 10,
        CurrencyId: 1,
        EntityIds: [1],
      });
    }
  });

  for (const [resource, path, query, fields] of [
    ['Entity', '/api/v1/Entities', 'mode=upsert', 'Id, StatusId, CurrencyId'],
    ['Entity', '/api/v1/Entities', 'mode=create', 'StatusId, CurrencyId'],
    ['SystemOption', '/api/v1/SystemOptions', 'mode=upsert', 'Id'],
    ['Promotion', '/api/v1/Promotions', 'mode=upsert', 'CurrencyId, EntityIds'],
  ] as const) {
    it(`an export of ${resource} of another tenant is refused with 400, and changes nothing, with ${query}`, async () => {
      const before = await recordsOf(globex);
      const file = await exportOf(acme, path);

      const refused = await send(globex, `${resource}&${query}`, file);

      expect(refused.status).to.equal(400);
      expect(refused.body.detail).to.equal(
        `The file has ids, which mean something only in the tenant that gave them (${fields}). ` +
          'Send ids=own if this tenant gave them; otherwise leave these columns out.',
      );
      expect(refused.body.errorCodes.ids).to.deep.equal([{ code: 'required' }]);
      expect(await recordsOf(globex)).to.deep.equal(before);
    });
  }

  it('an unchanged export with ids that its tenant imports again with ids=own changes nothing', async () => {
    const countAudit = () => sql(world.acme, 'select count(*) from audit_log');
    const before = await countAudit();

    for (const [resource, path] of [
      ['Entity', '/api/v1/Entities'],
      ['SystemOption', '/api/v1/SystemOptions'],
      ['Promotion', '/api/v1/Promotions'],
    ] as const) {
      const done = await importFile(
        acme,
        `${resource}&mode=upsert&ids=own`,
        await exportOf(acme, path),
      );
      expect(done, resource).to.include({ Rows: 1, Unchanged: 1 });
    }

    expect(await countAudit()).to.deep.equal(before);
  });

  it('a file without ids needs no ids=own: references by code, ids that are no key, groups of system options', async () => {
    await globex.post('/api/v1/Countries', { CountryCode: 'CH', CountryName: 'Switzerland' });

    for (const [query, file] of [
      ['Entity', 'Name,EntityType,CountryCode\nBy code,customer,CH\n'],
      ['Currency&mode=upsert', 'Id,Code,Name\n1,CHF,Franc\n'],
      ['OrderStatus', 'Id,Name\n1,New\n'],
      ['SystemOption', 'SystemOptionTypeId,Value\n7,x\n'],
    ] as const) {
      expect(await importFile(globex, query, file), query).to.include({ Created: 1, Refused: 0 });
    }
  });

  it('a row that is marked as deleted makes no record, marks the record that exists, and unmarks none', async () => {
    const header = 'CountryCode,CountryName,IsDeleted\n';
    await globex.post('/api/v1/Countries', { CountryCode: 'GB', CountryName: 'United Kingdom' });

    const tried = await importFile(globex, 'Country&mode=create', `${header}XX,Nowhere,true\n`);
    expect(tried).to.include({ Created: 0, Unchanged: 1 });
    expect((await globex.get('/api/v1/Countries/code/XX')).status).to.not.equal(200);

    const marked = await importFile(
      globex,
      'Country&mode=upsert',
      `${header}GB,United Kingdom,true\n`,
    );
    expect(marked).to.include({ Updated: 1 });
    const { body } = await globex.get('/api/v1/Countries?includeDeleted=true');
    const record = body.find(({ CountryCode }: { CountryCode: string }) => CountryCode === 'GB');
    expect(record.IsDeleted).to.equal(true);
    expect(Date.parse(record.DeletedAt)).to.be.closeTo(Date.now(), 60_000);

    const again = await importFile(
      globex,
      'Country&mode=upsert',
      `${header}GB,United Kingdom,TRUE\n`,
    );
    expect(again).to.include({ Unchanged: 1 });
    for (const file of [
      `${header}GB,United Kingdom,false\n`,
      `${header}GB,United Kingdom,\n`,
      'CountryCode,CountryName\nGB,United Kingdom\n',
      'CountryCode,CountryName\nGB,Great Britain\n',
    ]) {
      const unmarked = await importFile(globex, 'Country&mode=upsert&atomic=false', file);
      expect(unmarked, file).to.include({ Unchanged: 0, Updated: 0, Refused: 1 });
      expect(unmarked.Errors[0]).to.include({ Field: 'CountryCode', Code: 'taken' });
    }
    expect((await globex.get('/api/v1/Countries/code/GB')).status).to.equal(404);
    expect((await globex.post('/api/v1/Countries/code/GB/undelete')).status).to.equal(200);
    const restored = await importFile(
      globex,
      'Country&mode=upsert',
      'CountryCode,CountryName\nGB,United Kingdom\n',
    );
    expect(restored).to.include({ Unchanged: 1, Refused: 0 });
  });

  it('every field of a resource that ends in Id or Ids is declared as a reference, but groups of system options', () => {
    const isReference = (field: string) => /Ids?$/.test(field) && field !== 'SystemOptionTypeId';

    for (const { definition } of resources) {
      const fields = Object.keys(definition.create.shape).filter(isReference);
      const declared = Object.keys(definition.references ?? {}).map(pascalCase);
      expect(declared, definition.name).to.include.members(fields);
    }
  });
});
