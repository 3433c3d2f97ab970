import { expect } from 'chai';
import type { Client } from '../../support/client.ts';
import { useLogin, useWorld } from '../../support/world.ts';

const csv = { 'Content-Type': 'text/csv' };
type Row = Record<string, unknown>;

describe('columns that an import does not take', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  /** Sends a file and returns the report. */
  async function importFile(client: Client, query: string, file: string) {
    const { status, body } = await client.post(`/api/v1/Imports?resource=${query}`, file, csv);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body;
  }

  const errorsOf = ({ Errors }: { Errors: Row[] }) =>
    Errors.map(({ Cell, Field, Code }) => `${Cell} ${Field} ${Code}`);
  const exportOf = async (path: string): Promise<string> =>
    (await acme.get(path, { Accept: 'text/csv' })).body;
  const upsert = 'Entity&mode=upsert&ids=own';

  let active: Row;

  before(async () => {
    await acme.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
    await globex.post('/api/v1/Currency', { Code: 'JPY', Name: 'Yen' });
    await globex.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
    await globex.patch('/api/v1/EntityStatus/2', { Title: 'Dormant' });
    await globex.patch('/api/v1/EntityStatus/3', { Title: 'Active' });
    const entity = { Name: 'Harbour', EntityType: 'customer', StatusId: 2, CurrencyId: 1 };
    active = (await acme.post('/api/v1/Entities', entity)).body;
  });

  it('a title that is not that of the status is an error of its row, which names the column that sets it', async () => {
    const file = (await exportOf('/api/v1/Entities')).replace(',Active,', ',Prospect,');

    const report = await importFile(acme, upsert, file);

    expect(report).to.include({ Applied: false, Unchanged: 0, Refused: 1 });
    expect(errorsOf(report)).to.deep.equal(['E2 StatusTitle not_applicable']);
    expect(report.Errors[0].Reason).to.match(/StatusId sets it, to Active/);
    expect((await acme.get(`/api/v1/Entities/${active.Id}`)).body).to.deep.equal(active);
  });

  it('a status and its title that are changed together are one change, and an empty title says nothing', async () => {
    const file = (await exportOf('/api/v1/Entities')).replace(',2,Active,', ',3,Inactive,');
    const changed = await importFile(acme, upsert, file);
    const back = file.replace(',3,Inactive,', ',2,,');

    const emptied = await importFile(acme, upsert, back);

    expect(changed).to.include({ Applied: true, Updated: 1 });
    expect(emptied).to.include({ Applied: true, Updated: 1 });
    expect((await acme.get(`/api/v1/Entities/${active.Id}`)).body.StatusTitle).to.equal('Active');
  });

  for (const [field, value] of [
    ['CreatedAt', '2020-01-01T00:00:00Z'],
    ['CreatedAt', 'yesterday'],
  ] as const) {
    it(`a ${field} of ${value} is refused for a record of this tenant, which has another one`, async () => {
      const file = `Id,Name,${field}\n${active.Id},Harbour,${value}\n`;

      const report = await importFile(acme, upsert, file);

      expect(errorsOf(report)).to.deep.equal([`C2 ${field} not_applicable`]);
    });
  }

  it('entities carried to another tenant by titles and codes have the status and currency of the same name there', async () => {
    const [header = '', ...rows] = (await exportOf('/api/v1/Entities')).trim().split('\r\n');
    const names = header.split(',');
    const carried = rows.map(row => {
      const cells = row.split(',');
      cells[names.indexOf('StatusId')] = '';
      cells[names.indexOf('CurrencyId')] = 'eur';
      return cells.join(',');
    });

    const report = await importFile(globex, 'Entity', [header, ...carried].join('\n'));

    expect(report).to.deep.include({ Applied: true, Created: rows.length, Errors: [] });
    const { body } = await globex.get('/api/v1/Entities?filter[Name]=Harbour');
    expect(body[0]).to.include({ StatusId: 3, StatusTitle: 'Active', CurrencyId: 2 });
  });

  it('a file without the numbers takes the titles in their place, also in the column of the number', async () => {
    const titles = 'Name,EntityType,StatusTitle\nTitled,customer,Dormant\n';
    const numbers = 'Name,EntityType,StatusId,CurrencyId\nNamed,customer,dormant,JPY\n';

    const ofTitles = await importFile(globex, 'Entity', titles);
    const ofNumbers = await importFile(globex, 'Entity', numbers);

    expect(ofTitles).to.include({ Applied: true, Created: 1 });
    expect(ofNumbers).to.include({ Applied: true, Created: 1 });
    const own = 'filter[Name]=Titled&filter[Name]=Named';
    const { body } = await globex.get(`/api/v1/Entities?filter[StatusId]=2&${own}&sort=Id`);
    expect(body.map(({ Name, CurrencyId }: Row) => [Name, CurrencyId])).to.deep.equal([
      ['Titled', null],
      ['Named', 1],
    ]);
  });

  it('a title is found in any letter case, and is then that of its record', async () => {
    await globex.post('/api/v1/EntityStatus', { Title: 'ΟΔΟΣ' });
    const file = 'Name,EntityType,StatusTitle\nGreek,customer,οδοσ\n';

    const report = await importFile(globex, 'Entity', file);
    const elsewhere = await importFile(acme, 'Entity', file);

    expect(errorsOf(report)).to.be.empty;
    expect(report).to.include({ Applied: true, Created: 1 });
    expect(errorsOf(elsewhere)).to.deep.equal(['C2 StatusTitle unknown_reference']);
  });

  it('a title or a code that no record has, or that several have, is an error in its cell', async () => {
    await globex.post('/api/v1/EntityStatus', { Title: 'Twice' });
    await globex.post('/api/v1/EntityStatus', { Title: 'Twice' });
    const file = [
      'Name,EntityType,StatusTitle,CurrencyId',
      'A,customer,Nonsense,QQQ',
      'B,customer,Twice,',
      'C,customer,Active,',
    ].join('\n');

    const report = await importFile(globex, 'Entity&atomic=false', file);

    expect(report).to.include({ Created: 1, Refused: 2 });
    expect(errorsOf(report)).to.have.members([
      'C2 StatusTitle unknown_reference',
      'D2 CurrencyId unknown_reference',
      'C3 StatusTitle ambiguous',
    ]);
  });

  it('an upsert changes a status by its title, and leaves it as it is without one', async () => {
    const { body } = await globex.post('/api/v1/Entities', {
      Name: 'Kept',
      EntityType: 'customer',
    });
    const entity = async () => (await globex.get(`/api/v1/Entities/${body.Id}`)).body;

    await importFile(globex, upsert, `Id,StatusTitle\n${body.Id},Dormant\n`);
    const changed = await entity();
    await importFile(globex, upsert, `Id,Name,StatusTitle\n${body.Id},Renamed,\n`);
    const renamed = await entity();

    expect(changed.StatusTitle).to.equal('Dormant');
    expect(renamed).to.include({ Name: 'Renamed', StatusTitle: 'Dormant' });
  });

  it('promotions are carried with the code of their currency, and those for entities need ids=own', async () => {
    const file =
      'PromoCode,Name,DiscountType,DiscountValue,CurrencyId,EntityIds\nTEN,Ten,Amount,10,JPY,[]\n';

    const carried = await importFile(globex, 'Promotion', file);
    const refused = await globex.post(
      '/api/v1/Imports?resource=Promotion',
      file.replace('[]', '[1]'),
      csv,
    );

    expect(carried).to.include({ Applied: true, Created: 1 });
    expect(refused.status).to.equal(400);
    expect(refused.body.detail).to.include('(EntityIds)');
  });
});
