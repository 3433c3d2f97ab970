import { expect } from 'chai';
import fc from 'fast-check';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { expectRefused } from './expect.ts';

const path = '/api/v1/TaxCodes';

describe('tax codes', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  let id: number;

  before(async () => {
    id = (await admin.post(path, { Code: 'VAT', Name: 'Standard', Rate: 25 })).body.Id;
  });

  const setRate = (Rate: unknown) =>
    admin.put(`${path}/${id}`, { Code: 'VAT', Name: 'Standard', Rate });

  it('a tax rate from 0 to 100 with four decimals is stored exactly and returned as a JSON number', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 1_000_000 }), async tenThousandths => {
        const exact = Number(`${tenThousandths}e-4`);
        const response = await setRate(exact);

        expect(response.status).to.equal(200);
        expect(response.body.Rate).to.equal(exact);
        expect((await admin.get(`${path}/${id}`)).body.Rate).to.equal(exact);
      }),
      { seed: 1, numRuns: 50, examples: [[0], [1], [1_000_000], [999_999], [3]] },
    );
  });

  it('a tax rate that cannot be stored exactly is refused', async () => {
    await setRate(19);

    for (const Rate of [
      -0.0001,
      100.0001,
      0.00001,
      19.00001,
      33.333333333333336,
      1e-10,
      '19',
      null,
    ]) {
      expectRefused(await setRate(Rate), 400, 'validation_failed', ['Rate']);
    }

    expect((await admin.get(`${path}/${id}`)).body.Rate).to.equal(19);
  });

  it('a tax rate is stored as a decimal number, not a binary one', async () => {
    await setRate(0.1);
    const [row] = await sql<{ rate: string }>(
      world.acme,
      'select rate::text from tax_codes where id = $1',
      [id],
    );
    expect(row?.rate).to.equal('0.1000');
  });
});
