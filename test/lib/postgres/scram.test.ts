import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { scramVerifier } from '../../../src/lib/postgres/scram.ts';
import { ScramClient } from '../../../src/lib/postgres/scram-client.ts';
import { postgresUrl } from '../../support/test-server.ts';

describe('logins to PostgreSQL with SCRAM', () => {
  const role = `scram_${randomBytes(4).toString('hex')}`;
  const run = (statement: string) =>
    withConnection(postgresUrl(), client => client.query(statement));

  before(() => run(`create role ${role} login; grant connect on database postgres to ${role}`));
  after(() => run(`revoke connect on database postgres from ${role}; drop role ${role}`));

  const setPassword = (verifier: string) => run(`alter role ${role} password '${verifier}'`);

  /** @returns the user of the session */
  async function logIn(password: string, port?: number): Promise<string> {
    const url = new URL(postgresUrl());
    Object.assign(
      url,
      { username: role, password: encodeURIComponent(password) },
      port && { port, host: `127.0.0.1:${port}` },
    );
    const client = new ScramClient({ connectionString: url.href });
    client.on('error', () => {});
    try {
      await client.connect();
      return (
        (await client.query<{ user: string }>('select current_user as user')).rows[0]?.user ?? ''
      );
    } finally {
      await client.end();
    }
  }

  const failure = (login: Promise<unknown>) =>
    login.then(
      () => expect.fail('the login was accepted'),
      (error: Error & { code?: string }) => error.code ?? error.message,
    );

  for (const iterations of [1, 4_096, 5_000]) {
    it(`the right password logs in and a wrong one does not, also after a change, with ${iterations} iterations`, async () => {
      for (const password of ['p4ssword', 'ch4nged']) {
        await setPassword(scramVerifier(password, iterations));
        for (let login = 1; login <= 2; login++) expect(await logIn(password)).to.equal(role);
        expect(await failure(logIn(`${password}-`))).to.equal('28P01');
      }
      expect(await failure(logIn('p4ssword'))).to.equal('28P01');
    });
  }

  it('a password that is not ASCII logs in', async () => {
    await setPassword('paßwort'); // the server makes the verifier
    expect(await logIn('paßwort')).to.equal(role);
  });

  it('a server that does not know the password is refused', async () => {
    await setPassword(scramVerifier('p4ssword', 1));

    const { hostname, port } = new URL(postgresUrl());
    const proxy = createServer(client => {
      const server = connect(Number(port), hostname);
      client.pipe(server);
      server.on('data', chunk => {
        const signature = chunk.indexOf('v=');
        if (signature >= 0) chunk[signature + 2] = chunk[signature + 2] === 65 ? 66 : 65;
        if (client.writable) client.write(chunk);
      });
      server.on('close', () => client.destroy());
      client.on('close', () => server.destroy());
    }).listen(0, '127.0.0.1');
    await once(proxy, 'listening');

    try {
      const refusal = await failure(logIn('p4ssword', (proxy.address() as AddressInfo).port));
      expect(refusal).to.match(/server signature does not match/);
    } finally {
      proxy.close();
    }
  });
});
