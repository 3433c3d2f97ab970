import { expect } from 'chai';
import { sendSteadily, summaryOf } from '../../support/steady-load.ts';

const statuses = '/api/v1/EntityStatus';
const requestsPerSecond = 40;

/** The response to a request. */
export interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: a JSON document of the API
  readonly body: any;
}

/**
 * Sends a request as one of several clients, each of which has a rate limit of its own.
 * @param client number of the client, from 0 on
 */
export type Send = (
  client: number,
  request: {
    method: string;
    path: string;
    headers: Record<string, string>;
    text: string | undefined;
  },
) => Promise<Answer>;

/**
 * Sends the requests of all clients from the address of this machine.
 * @param url of the service
 */
export function sendTo(url: string): Send {
  return async (_client, { method, path, headers, text }) => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers,
      ...(text !== undefined && { body: text }),
    });

    return { status: response.status, body: await response.json() };
  };
}

/** A tenant that a page provisions, as its administrator uses it. */
export class Northwind {
  readonly #send: Send;
  readonly #slug: string;
  #token: string | undefined;

  constructor(send: Send, slug = 'northwind') {
    this.#send = send;
    this.#slug = slug;
  }

  /** @param password the one that `provision` has printed */
  async login(password: string): Promise<void> {
    this.#token = undefined;
    const body = { email: `admin@${this.#slug}.test`, password };
    const answer = await this.#request(0, 'POST', '/api/v1/auth/login', body, {
      'X-Tenant': this.#slug,
    });

    expect(answer.status, JSON.stringify(answer.body)).to.equal(200);
    this.#token = answer.body.accessToken;
  }

  async titles(): Promise<string[]> {
    const { status, body } = await this.#request(1, 'GET', statuses);

    expect(status, JSON.stringify(body)).to.equal(200);
    return body.map(({ Title }: { Title: string }) => Title);
  }

  async add(title: string): Promise<void> {
    const { status, body } = await this.#request(2, 'POST', statuses, { Title: title });

    expect(status, JSON.stringify(body)).to.equal(201);
  }

  /**
   * Sends reads and writes until `until` resolves.
   * @returns what came in place of a success, and the titles of the acknowledged writes
   */
  async load(
    name: string,
    until: Promise<unknown>,
  ): Promise<{ failed: unknown[]; acknowledged: string[] }> {
    const acknowledged: string[] = [];

    const served = await sendSteadily(requestsPerSecond, until, async number => {
      if (number % 4 !== 0) return (await this.#request(number, 'GET', statuses)).status;

      const title = `${name} ${number}`;
      const { status } = await this.#request(number, 'POST', statuses, { Title: title });
      if (status === 201) acknowledged.push(title);
      return status;
    });

    const failed = served
      .map(({ status }) => status)
      .filter(status => status !== 200 && status !== 201);
    const counts = Object.entries(Object.groupBy(failed, String)).map(
      ([text, all]) => `${text}: ${all?.length}`,
    );
    console.log(`      ${name}: ${JSON.stringify(summaryOf(served))} ${counts.join(', ')}`);
    return { failed, acknowledged };
  }

  #request(
    client: number,
    method: string,
    path: string,
    body?: object,
    others = {},
  ): Promise<Answer> {
    const text = body && JSON.stringify(body);
    const headers = {
      ...others,
      ...(this.#token && { Authorization: `Bearer ${this.#token}` }),
      ...(text && { 'Content-Type': 'application/json' }),
    };

    return this.#send(client, { method, path, headers, text });
  }
}
