import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { copyOut } from '../../../src/lib/postgres/copy-out.ts';
import { startEndingProxy } from '../../support/ending-proxy.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { use } from '../../support/use.ts';

/** More rows than the buffers of both ends and of the network between them hold. */
const large = `copy (select repeat('x', 1000) from generate_series(1, 100000)) to stdout`;

describe('rows that are copied out of a database', () => {
  const proxy = use(() => startEndingProxy(postgresUrl()));

  it('a connection whose rows were read to their end is used for further queries', async () => {
    const found = await withConnection(postgresUrl(), async client => {
      const chunks = await Array.fromAsync(copyOut(client, `copy (values (1), (2)) to stdout`));
      const { rows } = await client.query('select 3 as number');

      return { text: Buffer.concat(chunks).toString(), rows };
    });

    expect(found).to.deep.equal({ text: '1\n2\n', rows: [{ number: 3 }] });
  });

  it('a connection whose rows were not read to their end is broken off, so that its later queries and its end do not wait for them', async () => {
    const failure = await withConnection(postgresUrl(), async client => {
      for await (const _ of copyOut(client, large)) break;

      return client.query('select 1').then(
        () => 'no error',
        (error: Error) => error.message,
      );
    });

    expect(failure).to.match(/^(?:Connection terminated|Client has encountered)/);
  });

  it('a reader that waits while the server ends gets the error of the connection', async () => {
    await proxy.endAfter(40, false);

    const failure = await withConnection(proxy.through(postgresUrl()), async client => {
      for await (const _ of copyOut(client, large)) await new Promise(setImmediate);
    }).catch((error: Error) => error.message);

    expect(failure).to.match(/^Connection terminated|ECONNRESET/);
  });
});
