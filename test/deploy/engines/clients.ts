import { execFileSync } from 'node:child_process';
import { Agent, request } from 'node:http';
import type { Answer, Send } from './northwind.ts';

/**
 * Clients with addresses of their own in the network of a balancer: those of one address share
 * one rate limit.
 */
export class Clients {
  readonly #device: string;
  readonly #addresses: readonly string[];
  readonly #agents: readonly Agent[];
  readonly #host: string;

  /**
   * @param host address of the balancer
   * @param addresses free ones in its network
   */
  constructor(host: string, addresses: readonly string[]) {
    const route = execFileSync('ip', ['-o', 'route', 'get', host], { encoding: 'utf8' });
    this.#device = / dev (\S+)/.exec(route)?.[1] ?? '';
    this.#host = host;
    this.#addresses = addresses;

    for (const address of addresses) {
      execFileSync('ip', ['address', 'replace', `${address}/24`, 'dev', this.#device]);
    }
    this.#agents = addresses.map(localAddress => new Agent({ keepAlive: true, localAddress }));
  }

  readonly send: Send = (client, { method, path, headers, text }) => {
    const agent = this.#agents[client % this.#agents.length];
    const length = text === undefined ? {} : { 'Content-Length': Buffer.byteLength(text) };
    const options = {
      host: this.#host,
      port: 8080,
      method,
      path,
      agent,
      headers: { ...headers, ...length },
    };

    return new Promise<Answer>((resolve, reject) => {
      const sent = request(options, response => {
        let received = '';
        response.setEncoding('utf8');
        response.on('data', chunk => {
          received += chunk;
        });
        response.on('error', reject);
        response.on('end', () => {
          const isJson = /json/.test(response.headers['content-type'] ?? '');
          resolve({
            status: response.statusCode ?? 0,
            body: isJson ? JSON.parse(received) : received,
          });
        });
      });
      sent.on('error', reject);
      sent.end(text);
    });
  };

  close(): void {
    for (const agent of this.#agents) {
      agent.destroy();
    }
    for (const address of this.#addresses) {
      execFileSync('ip', ['address', 'delete', `${address}/24`, 'dev', this.#device]);
    }
  }
}
