import { expect } from 'chai';
import type { ApiResponse } from '../../support/client.ts';
import { useLogin, useWorld } from '../../support/world.ts';

const json = { 'Content-Type': 'application/json' };

describe('values as clients write them', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const fieldsOf = ({ body }: ApiResponse) => Object.keys(body.errors ?? {});

  /** Sends a body as it is written, which `JSON.stringify` would change. */
  async function postText(path: string, text: string, headers: Record<string, string> = json) {
    const response = await fetch(`${admin.url}${path}`, {
      method: 'POST',
      body: text,
      headers: { Authorization: `Bearer ${admin.tokens?.accessToken}`, ...headers },
    });
    return { status: response.status, body: (await response.json()) as ApiResponse['body'] };
  }

  it('a number with more digits than JavaScript keeps is refused by the name of its field, and any other is stored exactly', async () => {
    const promotion = (value: string) =>
      `{"PromoCode":"N${value}","Name":"Number","DiscountType":"Percentage","DiscountValue":${value}}`;

    for (const value of ['19.99', '20.0000000000000000', '2e1', '0.1']) {
      const { status, body } = await postText('/api/v1/Promotions', promotion(value));
      expect(status, value).to.equal(201);
      expect(body.DiscountValue, value).to.equal(Number(value));
    }

    for (const [field, value] of [
      ['DiscountValue', '99.99999999999999999'],
      ['DiscountValue', '0.10000000000000001'],
    ] as const) {
      const { status, body } = await postText('/api/v1/Promotions', promotion(value));
      expect(status, value).to.equal(400);
      expect(Object.keys(body.errors ?? {}), value).to.deep.equal([field]);
    }

    const header = 'PromoCode,Name,DiscountType,DiscountValue';
    const file = `${header}\nNCSV,Number,Percentage,99.99999999999999999\nNCSV2,Number,Percentage,19.50\n`;
    const imported = await postText(
      '/api/v1/Imports?resource=Promotion&mode=create&dryRun=true',
      file,
      {
        'Content-Type': 'text/csv',
      },
    );
    expect(
      imported.body.Errors.map(({ Line, Field }: { Line: number; Field: string }) => [Line, Field]),
    ).to.deep.equal([[2, 'DiscountValue']]);

    const activity = await postText(
      '/api/v1/Activity',
      '{"ActivityCode":1,"EntityId":4503599627370497.5}',
    );
    expect(activity.status).to.equal(400);
    expect(Object.keys(activity.body.errors ?? {})).to.deep.equal(['EntityId']);
  });

  it('a time is taken in each form of ISO 8601 that programs write, and is the same in all of them', async () => {
    const forms = [
      '2026-01-31T12:00Z',
      '2026-01-31T12:00:00+0000',
      '2026-01-31T13:00:00,000+01',
      '2026-01-31t12:00:00z',
    ];

    for (const [index, StartsAt] of forms.entries()) {
      const code = `TIME${index}`;
      const promotion = {
        PromoCode: code,
        Name: 'Time',
        DiscountType: 'Percentage',
        DiscountValue: 5,
        StartsAt,
      };

      const created = await admin.post('/api/v1/Promotions', promotion);
      expect(created.status, StartsAt).to.equal(201);
      expect(created.body.StartsAt, StartsAt).to.equal('2026-01-31T12:00:00.000Z');

      const filter = encodeURIComponent(StartsAt);
      const { body: found } = await admin.get(
        `/api/v1/Promotions?filter[StartsAt]=${filter}&filter[PromoCode]=${code}`,
      );
      expect(found, StartsAt).to.have.length(1);
    }

    for (const StartsAt of [
      '2026-01-31',
      '2026-01-31 12:00:00Z',
      '2026-02-30T12:00Z',
      '2026-01-31T12:00',
    ]) {
      const promotion = {
        PromoCode: 'T',
        Name: 'Time',
        DiscountType: 'Percentage',
        DiscountValue: 5,
        StartsAt,
      };
      expect((await admin.post('/api/v1/Promotions', promotion)).status, StartsAt).to.equal(400);
    }
  });

  it('a code that no path can have is refused when it is written, and each other code can be read and deleted by it', async () => {
    for (const Code of ['.', '..', ' . ']) {
      const response = await admin.post('/api/v1/UnitsOfMeasure', { Code, Name: 'Dots' });
      expect(response.status, Code).to.equal(400);
      expect(fieldsOf(response), Code).to.deep.equal(['Code']);
    }

    for (const Code of ['...', 'a/b', 'a?b', 'a%b', 'a#b', 'ü+ä', '%2e', 'a b']) {
      expect(
        (await admin.post('/api/v1/UnitsOfMeasure', { Code, Name: 'Code' })).status,
        Code,
      ).to.equal(201);
      const path = `/api/v1/UnitsOfMeasure/code/${encodeURIComponent(Code)}`;
      expect((await admin.get(path)).body.Code, Code).to.equal(Code);
    }
  });

  it('a text that shows nothing is empty, whatever characters it has', async () => {
    for (const Name of [
      '\u200b',
      '\u00ad\u2060',
      '\u3164',
      '\u2800 \u2800',
      ' \ufeff ',
      '\u202e',
    ]) {
      const response = await admin.post('/api/v1/OrderStatuses', { Name });
      expect(response.status, JSON.stringify(Name)).to.equal(400);
      expect(fieldsOf(response), JSON.stringify(Name)).to.deep.equal(['Name']);
    }

    expect(
      (await admin.post('/api/v1/OrderStatuses', { Name: '👩‍👩‍👧' })).status,
      'joined characters',
    ).to.equal(201);
  });

  it('a text is looked for in the form in which it is stored: q, filter and path find the same record', async () => {
    await admin.post('/api/v1/UnitsOfMeasure', {
      Code: ' CAFE\u0301 ',
      Name: ' Cafe\u0301 kilogram ',
    });

    for (const query of [
      'q=kilogram%20',
      'q=%20Caf%C3%A9',
      'q=Cafe%CC%81',
      'filter[Name]=Cafe%CC%81%20kilogram%20',
    ]) {
      const { body } = await admin.get(`/api/v1/UnitsOfMeasure?${query}`);
      expect(
        body.map(({ Code }: { Code: string }) => Code),
        query,
      ).to.deep.equal(['CAFÉ']);
    }

    expect((await admin.get('/api/v1/UnitsOfMeasure/code/CAFE%CC%81%20')).status).to.equal(200);

    const parts = await admin.get(
      '/api/v1/UnitsOfMeasure?filter[Name][prefix]=Caf%C3%A9%20&filter[Code]=%20CAF%C3%89',
    );
    expect(parts.body, 'a part of a text, with its space').to.have.length(1);
    const others = await admin.get('/api/v1/UnitsOfMeasure?filter[Name][prefix]=Caf%20');
    expect(others.body, 'another part of a text, with its space').to.deep.equal([]);
  });

  it('a query whose bytes are no UTF-8 is refused by the name of the parameter', async () => {
    for (const [query, name] of [
      ['q=caf%E9', 'q'],
      ['filter[Name]=%FF', 'filter[Name]'],
      ['limit=5&q=%C3', 'q'],
    ] as const) {
      const response = await admin.get(`/api/v1/Countries?${query}`);
      expect(response.status, query).to.equal(400);
      expect(fieldsOf(response), query).to.deep.equal([name]);
    }
  });

  it('a parameter that looks like a filter and is none is refused by its name', async () => {
    for (const name of [
      'filter',
      'Filter[Name]',
      'filters[Name]',
      'filter.Name',
      'filter-Name',
      'filter_Name',
      '$filter',
      '_filter',
      ' filter[Name]',
      'xfilter[Name]',
    ]) {
      const response = await admin.get(`/api/v1/Countries?${encodeURIComponent(name)}=x`);
      expect(response.status, name).to.equal(400);
      expect(fieldsOf(response), name).to.deep.equal([name]);
    }

    expect(
      (await admin.get('/api/v1/OrderStatuses?filtered=yes')).status,
      'another word',
    ).to.be.oneOf([200, 404]);
  });

  it('JSON is taken with any parameter of its media type, and refused in another charset than UTF-8', async () => {
    const names = [
      'charset=utf8',
      'charset="UTF-8"',
      'charset=us-ascii',
      'odata.metadata=minimal',
      'profile="x"',
      'v=1.0',
      'charset=utf-8; v=2',
    ];

    for (const [index, parameter] of names.entries()) {
      const headers = { 'Content-Type': `application/json; ${parameter}` };
      const { status } = await postText(
        '/api/v1/OrderStatuses',
        `{"Name":"media ${index}"}`,
        headers,
      );
      expect(status, parameter).to.equal(201);
    }

    const ascii = { 'Content-Type': 'application/json; charset=US-ASCII' };
    const beyond = await postText('/api/v1/OrderStatuses', '{"Name":"ä"}', ascii);
    const file = await postText('/api/v1/Imports?resource=OrderStatus', 'Name\nplain\n', {
      'Content-Type': 'text/csv; charset=us-ascii',
    });
    const fileBeyond = await postText('/api/v1/Imports?resource=OrderStatus', 'Name\nä\n', {
      'Content-Type': 'text/csv; charset=us-ascii',
    });
    expect(beyond.status).to.equal(400);
    expect(beyond.body.code).to.equal('malformed_json');
    expect(file.status).to.equal(200);
    expect(fileBeyond.status).to.equal(400);
    expect(fileBeyond.body.detail).to.match(/^The body is not in US-ASCII, as it says it is\./);

    const headers = { 'Content-Type': 'application/json; charset=iso-8859-1' };
    expect((await postText('/api/v1/OrderStatuses', '{"Name":"x"}', headers)).status).to.equal(415);
  });
});
