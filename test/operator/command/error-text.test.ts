import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { errorText } from '../../../src/operator/command/texts.ts';
import { postgresUrl } from '../../support/test-server.ts';

describe('text of an error', () => {
  it('the text of an error can be stored with the outcomes of other tenants, wherever it is cut', async () => {
    const texts = [`${'x'.repeat(299)}😀`, 'a character\0in between'].map(text =>
      errorText(new Error(text)),
    );
    const { rows } = await withConnection(postgresUrl(), client =>
      client.query<{ error: string }>('select error from json_to_recordset($1) as e (error text)', [
        JSON.stringify(texts.map(error => ({ error }))),
      ]),
    );
    expect(rows.map(({ error }) => error)).to.deep.equal(texts);
    expect(texts).to.deep.equal([`${'x'.repeat(299)}\ufffd`, 'a character in between']);
  });
});
