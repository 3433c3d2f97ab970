import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, type World } from '../../support/world.ts';

export const currencies = '/api/v1/Currency';
/** The promised delay until another process serves a change, in ms. */
export const feedMs = 1_000;
export const noCache = { 'Cache-Control': 'no-cache' };

/** Clients of one user for the first and the second process. */
export type Clients = [Client, Client];

/**
 * Two processes of the service, and one currency of acme. Globex has a currency with the same
 * path.
 */
export interface CacheWorld {
  readonly world: World;
  readonly acme: Clients;
  readonly globex: Clients;
  readonly currencyPath: string;
  readonly managementPorts: number[];
  clientsOf(client: Client): Clients;
  /** Changes the name of the currency. */
  rename(client: Client, name: string): Promise<ApiResponse>;
  /** Renames the currency of acme in the first process, and returns the name. */
  renamed(name: string): Promise<string>;
  nameAt(client: Client, headers?: Record<string, string>): Promise<string>;
  /** Requests the currency and the list, so that both processes cache them. */
  fillCaches(clients: Clients): Promise<void>;
  /**
   * Expects the name from both processes, as soon as the feed has announced it, and from then
   * on.
   */
  expectEverywhere(name: string): Promise<void>;
  /**
   * Runs the requests in both processes while every query of the currencies of acme waits for a
   * lock, and expects that they do not wait. Retries after a late announcement, because the
   * processes then have to cache the responses again.
   */
  fromMemory(request: (client: Client) => Promise<unknown>): Promise<void>;
}

export async function createCacheWorld(): Promise<CacheWorld> {
  const world = await createWorld();
  // With one connection, the second process reads on the connection that it writes on.
  const second = await world.startAnotherServer({ TENANT_CONNECTIONS: '1' });
  const clientsOf = (client: Client): Clients => [client.at(world.url), client.at(second.url)];
  const acme = clientsOf(await world.login(world.acme));
  const globex = clientsOf(await world.login(world.globex));
  const { body } = await acme[0].post(currencies, { Code: 'EUR', Name: 'Euro' });
  const currencyPath = `${currencies}/${body.Id}`;
  const other = await globex[0].post(currencies, { Code: 'EUR', Name: 'Euro' });
  expect(other.body.Id).to.equal(body.Id);

  const rename: CacheWorld['rename'] = (client, name) =>
    client.put(currencyPath, { Code: 'EUR', Name: name });
  const nameAt: CacheWorld['nameAt'] = async (client, headers = {}) =>
    (await client.get(currencyPath, headers)).body.Name;
  const fillCaches: CacheWorld['fillCaches'] = async clients => {
    for (const client of clients) {
      for (const path of [currencyPath, currencies, currencyPath]) {
        expect((await client.get(path)).status).to.equal(200);
      }
    }
  };

  return {
    world,
    acme,
    globex,
    currencyPath,
    managementPorts: [world.service.managementPort, second.service.managementPort],
    clientsOf,
    rename,
    renamed: async name => {
      expect((await rename(acme[0], name)).status).to.equal(200);
      return name;
    },
    nameAt,
    fillCaches,
    expectEverywhere: async name => {
      for (const client of acme) {
        await eventually(async () => (await nameAt(client)) === name, announcedMs);
      }
      for (const client of [...acme, ...acme]) expect(await nameAt(client)).to.equal(name);
    },
    fromMemory: async request => {
      await eventually(async () => {
        await fillCaches(acme);
        await withConnection(world.acme.adminUrl, async session => {
          await session.query('begin; lock table currencies in access exclusive mode');
          let isOver = false;
          const blocked = eventually(
            async () => isOver || (await readLockWaiters(session)).length > 0,
          ).then(() => isOver || expect.fail('the request waits for the database'));
          try {
            for (const client of acme) await Promise.race([request(client), blocked]);
          } finally {
            isOver = true;
          }
          await session.query('rollback');
        });
        return true;
      });
    },
  };
}

/** Runs a statement as the superuser of the test server. */
export function asOperator(statement: string): Promise<object[]> {
  return withConnection(postgresUrl(), async client => (await client.query(statement)).rows);
}
