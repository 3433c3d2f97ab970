import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { expect } from 'chai';
import pg from 'pg';
import { connectionConfig, withConnection } from '../../src/postgres/connection.ts';
import { sqlState } from '../../src/postgres/database-error.ts';
import { postgresUrl } from '../support/test-server.ts';

describe('connections to PostgreSQL', () => {
  it('session settings and time limits of a connection are added to the options in its URL', async () => {
    const url = new URL(postgresUrl());
    url.searchParams.set('options', '-c work_mem=1234kB');
    const settings = ['work_mem', 'jit', 'statement_timeout', 'lock_timeout', 'application_name'];
    const read = async (client: pg.Client) =>
      (
        await client.query<{ values: string[] }>(
          'select array(select current_setting(name) from unnest($1::text[]) name) as values',
          [settings],
        )
      ).rows[0]?.values;
    const values = await withConnection(url.href, read, { kind: 'migrations', settings: { jit: 'off' } });
    expect(values).to.deep.equal(['1234kB', 'off', '5min', '5s', 'backoffice-migrations']);
  });

  describe('connections to a server that accepts and never responds', () => {
    let silent: Server;
    const sockets = new Set<Socket>();

    before(async () => {
      silent = createServer(socket => sockets.add(socket)).listen(0, '127.0.0.1');
      await once(silent, 'listening');
    });
    after(() => {
      for (const socket of sockets) socket.destroy();
      silent.close();
    });

    it('a connect timeout of a client has the code ETIMEDOUT', async () => {
      const { port } = silent.address() as { port: number };
      const config = connectionConfig(`postgresql://user:password@127.0.0.1:${port}/any`, 'operator');
      const client = new pg.Client({ ...config, connectionTimeoutMillis: 50 });
      const error = await client.connect().then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(sqlState(error)).to.equal('ETIMEDOUT');
    });
  });
});
