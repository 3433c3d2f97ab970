import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { unlessLate } from '../../support/late-refusals.ts';
import type { TwoServers } from '../../support/two-servers.ts';
import { notWrittenOnce } from '../../support/written-once.ts';

const path = '/api/v1/EntityStatus';
/**
 * Between two writes of a client: the move, and the tests beside this one, need the machine
 * more than the load does.
 */
const pauseMs = 80;

/** Writes of two processes of the service to a tenant that is moved, and to another one. */
export class MovedWrites {
  readonly #servers: TwoServers;
  readonly #moved: readonly Client[];
  readonly #other: Client;
  #number = 0;

  private constructor(servers: TwoServers, moved: readonly Client[], other: Client) {
    this.#servers = servers;
    this.#moved = moved;
    this.#other = other;
  }

  /** Starts the second process. */
  static async start(servers: TwoServers): Promise<MovedWrites> {
    const { world } = servers;
    const [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
    const { url } = await world.startAnotherServer();
    return new MovedWrites(servers, [acme, acme.at(url)], globex);
  }

  /**
   * Writes and reads, one after another, until `work` has ended.
   * @param mayFail true if requests of the moved tenant may fail; all others must succeed
   * @returns its result, and the titles that the moved tenant has for sure
   */
  async during<T>(
    work: () => Promise<T>,
    mayFail = false,
  ): Promise<{ result: T; titles: string[] }> {
    const statuses = new Set<number>();
    let isOver = false;
    const write = async (client: Client): Promise<string[]> => {
      const titles: string[] = [];
      while (!isOver) {
        const Title = `title ${++this.#number}`;
        const created = await unlessLate(() => client.post(path, { Title }));
        if (created?.status === 201) titles.push(Title);
        const read = await unlessLate(() => client.get(path));
        if (!mayFail || client === this.#other) {
          for (const response of [created, read]) if (response) statuses.add(response.status);
        }
        await delay(pauseMs);
      }
      return titles;
    };
    const writing = Promise.all([...this.#moved, this.#other].map(write));
    const result = await work().finally(() => (isOver = true));
    const titles = (await writing).slice(0, this.#moved.length).flat();
    expect([...statuses].sort()).to.deep.equal([200, 201]);
    return { result, titles };
  }

  /**
   * Expects that both processes read each of these titles once, and that its creation was
   * audited once.
   */
  async expectAll(titles: readonly string[]): Promise<void> {
    for (const client of this.#moved) {
      const { body } = await client.get(path, { 'Cache-Control': 'no-cache' });
      expect(notWrittenOnce([...titles], body)).to.deep.equal([]);
    }
    const audited = await withConnection(await this.#servers.currentUrl(), async client => {
      const { rows } = await client.query<{ title: string }>(
        `select after ->> 'title' as title from audit_log where action = 'create' and after ->> 'title' = any ($1)`,
        [titles],
      );
      return rows.map(({ title }) => title);
    });
    expect(audited.sort()).to.deep.equal([...titles].sort());
  }
}
