import { expect } from 'chai';
import { useLogin, useWorld } from '../../support/world.ts';

describe('paths and names that do not exist', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  const similar: [asked: string, meant: string | undefined][] = [
    ['/api/v1/Currencies', '/api/v1/Currency'],
    ['/api/v1/currency', '/api/v1/Currency'],
    ['/api/v1/currencies/7', '/api/v1/Currency/7'],
    ['/api/v1/Country', '/api/v1/Countries'],
    ['/api/v1/countries/code/GB', '/api/v1/Countries/code/GB'],
    ['/api/v1/Countries/GB', '/api/v1/Countries'],
    ['/api/v1/tax-codes', '/api/v1/TaxCodes'],
    ['/api/v1/TaxCode/1', '/api/v1/TaxCodes/1'],
    ['/api/v1/entity', '/api/v1/Entities'],
    ['/api/v1/EntityStatuses', '/api/v1/EntityStatus'],
    ['/api/v1/Activities', '/api/v1/Activity'],
    ['/api/v1/Audit-Logs', '/api/v1/AuditLog'],
    ['/api/v1/unit_of_measures', '/api/v1/UnitsOfMeasure'],
    ['/api/v1/Curency', '/api/v1/Currency'],
    ['/api/Webhooks', '/api/v1/Webhooks'],
    ['/v1/Webhook', '/api/v1/Webhooks'],
    ['/Changes', '/api/v1/Changes'],
    ['/api/v2/Import', '/api/v1/Imports'],
    ['/api/v1/Invoices', undefined],
    ['/api/v1', undefined],
    [`/api/v1/${'x'.repeat(2_000)}`, undefined],
  ];
  for (const [asked, meant] of similar) {
    it(`GET ${asked.slice(0, 40)} is 404, which asks for ${meant ?? 'no other path'}`, async () => {
      const { status, body } = await admin.get(asked);

      expect([404, 405]).to.include(status);
      if (status === 404) {
        expect(body.detail).to.equal(
          `No endpoint has this path.${meant ? ` Did you mean ${meant}?` : ''}`,
        );
      }
    });
  }

  it('a resource that the feed does not have is refused with the names of those that it has', async () => {
    for (const path of ['/api/v1/Changes', '/api/v1/Changes/stream']) {
      const { status, body } = await admin.get(`${path}?resource=Currencies`);

      expect(status).to.equal(400);
      expect(body.errors.resource[0]).to.match(
        /^must be names, separated by commas, of .*Country, .*Currency/,
      );
      expect(body.errorCodes.resource[0]).to.include({ code: 'not_allowed' });
      expect(body.errorCodes.resource[0].values).to.include('Currency');
    }
  });
});
