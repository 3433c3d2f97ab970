import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { freePort } from './free-port.ts';
import { makeServerFolder } from './server-folder.ts';

/** A PostgreSQL server that can be killed and started again on the same port. */
export class CrashingServer {
  readonly #folder: string;
  readonly #settings: string[];
  #running: EmbeddedPostgres;
  #isAway = false;

  private constructor(folder: string, settings: string[], running: EmbeddedPostgres) {
    this.#folder = folder;
    this.#settings = settings;
    this.#running = running;
  }

  static async start(name: string): Promise<CrashingServer> {
    const folder = await makeServerFolder(name);
    const settings = ['fsync=off', 'max_connections=60', `port=${await freePort()}`];
    return new CrashingServer(folder, settings, await startEmbeddedPostgres(folder, { settings }));
  }

  get url(): string {
    return this.#running.url;
  }

  async crash(): Promise<void> {
    process.kill(await this.#pid(), 'SIGKILL');
    this.#isAway = true;
  }

  async restart(): Promise<void> {
    this.#running = await startEmbeddedPostgres(this.#folder, { settings: this.#settings });
    this.#isAway = false;
  }

  async close(): Promise<void> {
    if (!this.#isAway) await this.#running.leave();
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #pid(): Promise<number> {
    const file = await readFile(join(this.#folder, 'postgres', 'postmaster.pid'), 'utf8');
    return Number(file.split('\n')[0]);
  }
}
