import { expect } from 'chai';
import { packNames } from '../../../src/operator/lifecycle/pack-names.ts';
import { type Pack, type PackRow, readPack } from '../../../src/operator/lifecycle/read-pack.ts';
import { countries } from '../../../src/sales/resources/country.ts';
import { currencies } from '../../../src/sales/resources/currency.ts';
import { unitsOfMeasure } from '../../../src/sales/resources/unit-of-measure.ts';

const contracts = { countries, currencies, units: unitsOfMeasure };

/**
 * Decimals of currencies in ISO 4217 that the Unicode CLDR, and so `Intl`, gives as 0, because
 * their coins are not used.
 */
const withoutCoins = 'AFN ALL COP HUF IDR IRR KPW LAK LBP MGA MMK PKR SOS SYP YER IQD'.split(' ');
/** Currencies of ISO 4217 that `Intl.supportedValuesOf` does not list. */
const unlisted = ['VED'];

describe('data of packs', () => {
  const packs: Pack[] = [];

  before(async () => packs.push(...(await Promise.all(packNames.map(readPack)))));

  const rowsOf = (name: string): readonly PackRow[] =>
    packs.find(pack => pack.name === name)?.rows ?? [];

  it('every row of a pack is a valid body of POST, has all its fields, and a code of its own', () => {
    for (const { name, rows, key } of packs) {
      const contract = contracts[name].routes.find(
        ({ method, body }) => method === 'POST' && body,
      )?.body;
      for (const row of rows) expect(contract?.parse(row), name).to.deep.equal(row);
      expect(new Set(rows.map(row => String(row[key]).toLowerCase())), name).to.have.property(
        'size',
        rows.length,
      );
    }
  });

  it('every pack names its edition and source', () => {
    for (const { title, edition, source } of packs) {
      for (const text of [title, edition, source]) {
        expect(text).to.be.a('string').with.length.above(10);
      }
    }
  });

  it('the pack of countries has the countries of ISO 3166-1 under the names of Intl', () => {
    const names = new Intl.DisplayNames('en', { type: 'region', fallback: 'none' });
    expect(rowsOf('countries')).to.have.length(249);
    for (const { CountryCode, CountryName } of rowsOf('countries')) {
      expect(names.of(String(CountryCode)), String(CountryCode)).to.equal(CountryName);
    }
  });

  it('the pack of currencies agrees with Intl on codes, names and decimals, but for the coins that nobody uses', () => {
    const supported = new Set([...Intl.supportedValuesOf('currency'), ...unlisted]);
    const names = new Intl.DisplayNames('en', { type: 'currency', fallback: 'none' });

    for (const { Code, Name, DecimalPlaces } of rowsOf('currencies')) {
      const currency = String(Code);
      expect(supported, currency).to.include(currency);
      expect(names.of(currency) ?? Name, currency).to.equal(Name);

      const { maximumFractionDigits } = new Intl.NumberFormat('en', {
        style: 'currency',
        currency,
      }).resolvedOptions();
      expect(maximumFractionDigits, currency).to.equal(
        withoutCoins.includes(currency) ? 0 : DecimalPlaces,
      );
    }

    const codes = rowsOf('currencies').map(({ Code }) => Code);
    expect(codes).to.include.members(['EUR', 'USD', 'XCG', 'ZWG']);
    expect(codes).not.to.include.oneOf(['BGN', 'HRK', 'ANG', 'ZWL', 'XTS', 'XAU']);
  });
});
