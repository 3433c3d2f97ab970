import { setTimeout as sleep } from 'node:timers/promises';
import type { FaultTenant } from './fault-installation.ts';
import type { FaultService } from './fault-service.ts';

/** A request has a response within 10 s; the rest is for a busy machine. */
const maxResponseMs = 14_000;
/** After this time without a fault, every request succeeds. */
const recoveryMs = 5_000;
/** The log lines of a response follow it within this time. */
const logDelayMs = 200;

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: the body is what the service sends
  readonly body: any;
}

interface RequestOptions {
  body?: object;
  headers?: Record<string, string>;
  /** Statuses other than 2xx that the caller expects. */
  expected?: readonly number[];
}

/** Sends requests, and checks that each has a response that a client may get at that moment. */
export class FaultClients {
  /**
   * The number of requests of each status; 0 counts connection errors and requests without a
   * response.
   */
  readonly statuses = new Map<number, number>();
  /** The longest time of a request to a process that was not disturbed, in ms. */
  maxMs = 0;
  readonly #report: (violation: string) => void;
  readonly #tokens = new Map<FaultTenant, string>();
  /** From this time on, by `performance.now()`, every request succeeds. */
  #calmFrom = Number.POSITIVE_INFINITY;

  constructor(report: (violation: string) => void) {
    this.#report = report;
  }

  beginFault(): void {
    this.#calmFrom = Number.POSITIVE_INFINITY;
  }

  endFault(): void {
    this.#calmFrom = performance.now() + recoveryMs;
  }

  /** Logs the administrator of a tenant in, through any process that serves. */
  async login(services: readonly FaultService[], tenant: FaultTenant): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      const service = services[attempt % services.length] as FaultService;
      const options = { body: tenant.admin, headers: { 'X-Tenant': tenant.guid } };
      const reply = await this.#send(service, undefined, 'POST', '/api/v1/auth/login', options);
      if (reply?.status === 200) {
        this.#tokens.set(tenant, reply.body.accessToken);
        return;
      }
      await sleep(200);
    }
  }

  /**
   * Resolves to the response; undefined if there is none, or it says that the service is not
   * available.
   */
  request(
    service: FaultService,
    tenant: FaultTenant,
    method: string,
    path: string,
    options: RequestOptions = {},
  ): Promise<Reply | undefined> {
    return this.#send(service, this.#tokens.get(tenant), method, path, options);
  }

  async #send(
    service: FaultService,
    token: string | undefined,
    method: string,
    path: string,
    { body, headers = {}, expected = [] }: RequestOptions,
  ): Promise<Reply | undefined> {
    const sentAt = performance.now();
    const what = `${method} ${path} of ${service.name}`;

    try {
      const response = await fetch(`${service.url}${path}`, {
        method,
        signal: AbortSignal.timeout(maxResponseMs),
        headers: {
          ...(token && { Authorization: `Bearer ${token}` }),
          ...(body && { 'Content-Type': 'application/json' }),
          ...headers,
        },
        ...(body && { body: JSON.stringify(body) }),
      });

      const text = await response.text();
      const { status } = response;
      this.#count(status);
      if (!service.mayFail(sentAt)) this.maxMs = Math.max(this.maxMs, performance.now() - sentAt);

      const isExpected = response.ok || expected.includes(status);
      if (isExpected) return { status, headers: response.headers, body: text && JSON.parse(text) };

      if (status !== 503) {
        await this.#reportProblem(
          service,
          `${what} has status ${status}: ${text.slice(0, 300)}`,
          text,
        );
      } else if (sentAt > this.#calmFrom) {
        this.#report(`${what} has 503 without a fault: ${text.slice(0, 300)}`);
      } else if (!response.headers.has('retry-after') && !/may have been made/.test(text)) {
        this.#report(`${what} has 503 without Retry-After: ${text.slice(0, 300)}`);
      }

      return undefined;
    } catch (error) {
      this.#count(0);
      const { message, cause } = error as Error;
      const ms = (performance.now() - sentAt).toFixed(0);
      if (!service.mayFail(sentAt)) {
        this.#report(
          `${what} failed after ${ms} ms: ${message} ${(cause as Error | undefined)?.message ?? ''}`,
        );
      }

      return undefined;
    }
  }

  /** Reports a response that must not be, with what the log says about it. */
  async #reportProblem(service: FaultService, violation: string, body: string): Promise<void> {
    const traceId = /"traceId":"([^"]+)"/.exec(body)?.[1];
    await sleep(logDelayMs);
    this.#report([violation, ...(traceId ? service.logOf(traceId) : [])].join('\n'));
  }

  #count(status: number): void {
    this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
  }
}
