import type { Logger } from 'pino';
import { type IpAddress, isInternal } from '../../config/ip-address.ts';
import type { ForwardedHeader } from './forwarded-elements.ts';

const maxElementLength = 100;
const names = { 'x-forwarded-for': 'X-Forwarded-For', forwarded: 'Forwarded' } as const;

/**
 * Logs the settings of proxies with which all clients count as one. Each kind is logged once in
 * the life of the process, because each request may show it again.
 */
export class ProxyNotices {
  readonly #log: Pick<Logger, 'warn'>;
  readonly #header: ForwardedHeader;
  readonly #logged = new Set<string>();

  constructor(log: Pick<Logger, 'warn'>, header: ForwardedHeader) {
    this.#log = log;
    this.#header = header;
  }

  /** A peer that is not trusted sends the header: a proxy, if its address is internal. */
  untrusted(peer: IpAddress): void {
    if (!isInternal(peer)) return;

    this.#warnOnce(
      { event: 'untrusted_proxy', peer: peer.toString() },
      `a request with ${this.#name} came from an internal address: if it is a proxy, add it ` +
        'to TRUSTED_PROXIES',
    );
  }

  /** A trusted peer forwards a text that is no address where its client's is expected. */
  unreadable(peer: string, element: string): void {
    const text = element.trim().slice(0, maxElementLength);

    this.#warnOnce(
      { event: 'unreadable_forwarded', peer, element: text },
      `a trusted proxy has forwarded a text in ${this.#name} that is no address, and the clients ` +
        'behind such a text count as one: let it forward their addresses',
    );
  }

  /** A trusted peer forwards fewer elements than `TRUSTED_HOPS`. */
  fewElements(peer: string): void {
    this.#warnOnce(
      { event: 'few_forwarded', peer },
      `a request of a trusted proxy has fewer elements in ${this.#name} than TRUSTED_HOPS, and the ` +
        'clients of such requests count as one: set TRUSTED_HOPS to the number of proxies on ' +
        'every way to the service',
    );
  }

  /** A trusted peer forwards the address in the header that is not read. */
  otherHeader(peer: string): void {
    const other = this.#header === 'forwarded' ? names['x-forwarded-for'] : names.forwarded;

    this.#warnOnce(
      { event: 'other_forwarded', peer },
      `a request of a trusted proxy has ${other} and no ${this.#name}, and the clients of such ` +
        `requests count as one: if the proxy writes it, set TRUSTED_HEADER=${other}`,
    );
  }

  get #name(): string {
    return names[this.#header];
  }

  #warnOnce(fields: { event: string; peer: string; element?: string }, text: string): void {
    if (this.#logged.has(fields.event)) return;
    this.#logged.add(fields.event);
    this.#log.warn(fields, text);
  }
}
