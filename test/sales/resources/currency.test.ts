import { expect } from 'chai';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { auditOf, expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/Currency';

describe('currencies', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('a currency code is three capital letters, and small letters are refused instead of converted', async () => {
    for (const Code of ['eur', 'Eur', 'EU', 'EURO', 'E1R', 'ÉUR', 'ＥＵＲ']) {
      expectRefused(await admin.post(path, { Code, Name: 'Euro' }), 400, 'validation_failed', [
        'Code',
      ]);
    }
    expect(await sql(world.acme, `select from currencies where name = 'Euro'`)).to.be.empty;

    expect(
      (await admin.post(path, { Code: 'EUR', Name: 'Euro', Symbol: '€' })).body,
    ).to.deep.include({
      Code: 'EUR',
      Symbol: '€',
      DecimalPlaces: 2,
      IsDeleted: false,
      DeletedAt: null,
    });
  });

  it('a currency cannot be looked up by its code', async () => {
    expectRefused(await admin.get(`${path}/code/EUR`), 404, 'not_found');
  });

  it('a currency has 0 to 6 decimal places', async () => {
    const { body: currency } = await admin.post(path, {
      Code: 'JPY',
      Name: 'Yen',
      DecimalPlaces: 0,
    });

    for (const DecimalPlaces of [0, 6]) {
      const response = await admin.put(`${path}/${currency.Id}`, {
        Code: 'JPY',
        Name: 'Yen',
        DecimalPlaces,
      });
      expect(response.status).to.equal(200);
      expect(response.body.DecimalPlaces).to.equal(DecimalPlaces);
    }

    for (const DecimalPlaces of [-1, 7]) {
      const response = await admin.put(`${path}/${currency.Id}`, {
        Code: 'JPY',
        Name: 'Yen',
        DecimalPlaces,
      });
      expectRefused(response, 400, 'validation_failed', ['DecimalPlaces']);
    }
  });

  it('the code of a deleted currency stays taken, for a new currency and for a change of another', async () => {
    const { body: deleted } = await admin.post(path, { Code: 'DEM', Name: 'Mark' });
    const { body: other } = await admin.post(path, { Code: 'FRF', Name: 'Franc' });
    await admin.delete(`${path}/${deleted.Id}`);

    expectRefused(await admin.post(path, { Code: 'DEM', Name: 'Mark' }), 400, 'duplicate');
    expectRefused(
      await admin.put(`${path}/${other.Id}`, { Code: 'DEM', Name: 'Mark' }),
      400,
      'duplicate',
    );
    expect((await admin.get(`${path}/${other.Id}`)).body).to.deep.equal(other);
  });

  it('a currency can be deleted while records refer to it, and the records do not change', async () => {
    const { body: currency } = await admin.post(path, { Code: 'NLG', Name: 'Guilder' });
    const entity = { Name: 'Corner Shop', EntityType: 'customer', CurrencyId: currency.Id };
    const { body: holder } = await admin.post('/api/v1/Entities', entity);
    const amount = {
      PromoCode: 'FIVE',
      Name: 'Five off',
      DiscountType: 'Amount',
      DiscountValue: 5,
    };
    const { body: promotion } = await admin.post('/api/v1/Promotions', {
      ...amount,
      CurrencyId: currency.Id,
    });
    const audited = await newestAudit(admin);

    expect((await admin.delete(`${path}/${currency.Id}`)).status).to.equal(204);

    expect((await admin.get(`/api/v1/Entities/${holder.Id}`)).body).to.deep.equal(holder);
    expect((await admin.get(`/api/v1/Promotions/${promotion.Id}`)).body).to.deep.equal(promotion);
    expect(await newestAudit(admin)).to.equal(audited + 1);

    const [, deletion] = await auditOf(admin, 'Currency', currency.Id);
    expect(deletion?.Action).to.equal('delete');
    expect(deletion?.Before).to.deep.equal(currency);
    const { body: marked } = await admin.get(`${path}/${currency.Id}?includeDeleted=true`);
    expect(deletion?.After).to.deep.equal(marked);
  });
});
