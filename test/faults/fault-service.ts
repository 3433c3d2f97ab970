import { type RunningScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import type { FaultProxy } from './fault-proxy.ts';

/**
 * A service process on a fixed port, with its own ways to the control database and to Redis.
 */
export class FaultService {
  readonly name: string;
  readonly controlProxy: FaultProxy;
  readonly redisProxy: FaultProxy | undefined;
  readonly #environment: Record<string, string>;
  #running: RunningScript | undefined;
  #port = 0;
  /**
   * The time up to which clients may have connection errors and no response up to this time, by
   * `performance.now()`.
   */
  #disturbedUntil = 0;

  constructor(
    name: string,
    controlProxy: FaultProxy,
    redisProxy: FaultProxy | undefined,
    environment: Record<string, string>,
  ) {
    this.name = name;
    this.controlProxy = controlProxy;
    this.redisProxy = redisProxy;
    this.#environment = environment;
    process.on('exit', () => this.#running?.process.kill('SIGKILL'));
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** The output of the running process. */
  get output(): string {
    const { stdout = '', stderr = '' } = this.#running?.output ?? {};
    return stdout + stderr;
  }

  /** The log lines of the running process about a problem. */
  logOf(traceId: string): string[] {
    return this.output.split('\n').filter(line => line.includes(traceId));
  }

  /**
   * True if a request that was sent at this time, by `performance.now()`, may end without a
   * response.
   */
  mayFail(sentAt: number): boolean {
    return sentAt <= this.#disturbedUntil;
  }

  /** Starts the process, and waits until it listens. */
  async start(): Promise<void> {
    this.#port ||= await freePort();
    this.#disturbedUntil = Number.POSITIVE_INFINITY;

    const running = startScript('src/main.ts', [], {
      ...this.#environment,
      PORT: String(this.#port),
      MANAGEMENT_PORT: '0',
      PUBLIC_URL: 'http://faults.test',
      LOG_LEVEL: 'warn',
      RATE_LIMIT_GLOBAL: '1000000/60s',
      RATE_LIMIT_LOGIN: '1000000/15m',
      RATE_LIMIT_FAILURES: '1000000/24h',
    });
    this.#running = running;

    const hasEnded = () => running.process.exitCode !== null || running.process.signalCode !== null;
    const isListening = async (): Promise<boolean> => {
      if (hasEnded()) return true;
      const response = await fetch(`${this.url}/docs`, { signal: AbortSignal.timeout(1_000) });
      await response.text();
      return true;
    };

    await eventually(isListening, 60_000);
    if (hasEnded()) throw new Error(`${this.name} ended at its start: ${this.output}`);
    this.#disturbedUntil = performance.now();
  }

  async kill(): Promise<void> {
    this.#disturbedUntil = Number.POSITIVE_INFINITY;
    this.#running?.process.kill('SIGCONT');
    this.#running?.process.kill('SIGKILL');
    await this.#running?.ended;
  }

  stop(): void {
    this.#disturbedUntil = Number.POSITIVE_INFINITY;
    this.#running?.process.kill('SIGSTOP');
  }

  continue(): void {
    this.#running?.process.kill('SIGCONT');
    this.#disturbedUntil = performance.now();
  }
}
