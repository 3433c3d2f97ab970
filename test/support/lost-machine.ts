import { execFileSync } from 'node:child_process';
import { appendFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { buildOf, nodeOptions, type RunningScript, startProgram } from './command-line.ts';
import { eventually } from './eventually.ts';

const [hostAddress, guestAddress, width] = ['10.213.77.1', '10.213.77.2', 30];

/**
 * A machine with a network of its own, which can vanish without closing its connections. Linux,
 * as root.
 */
export class LostMachine {
  readonly #name = `lost${process.pid}`;
  readonly #programs: RunningScript[] = [];

  private constructor() {}

  /** @returns undefined where no network namespace can be made */
  static create(): LostMachine | undefined {
    const machine = new LostMachine();
    try {
      machine.#ip(`netns add ${machine.#name}`);
      machine.#ip(`link add ${machine.#name} type veth peer name inside netns ${machine.#name}`);
      machine.#ip(`addr add ${hostAddress}/${width} dev ${machine.#name}`);
      machine.#ip(`link set ${machine.#name} up`);
      machine.#ip(`-n ${machine.#name} addr add ${guestAddress}/${width} dev inside`);
      machine.#ip(`-n ${machine.#name} link set inside up`);
      return machine;
    } catch {
      machine.close();
      return undefined;
    }
  }

  /**
   * Opens a connection from there, with the code that commands use, and keeps it in a
   * transaction.
   * @param url superuser's, of a server that listens on all addresses
   * @returns the process id of its backend
   */
  async holdConnection(url: string): Promise<number> {
    await admit(url);
    const target = new URL(url);
    target.hostname = hostAddress;
    const script = fileURLToPath(new URL('hold-connection.ts', import.meta.url));

    const program = startProgram(
      'ip',
      [
        'netns',
        'exec',
        this.#name,
        process.execPath,
        ...nodeOptions(buildOf(script)),
        script,
        target.href,
      ],
      {},
    );
    this.#programs.push(program);
    const pid = () => /^backend (\d+)$/m.exec(program.output.stdout)?.[1];
    await eventually(() => pid() !== undefined || program.process.exitCode !== null);
    if (pid() === undefined) throw new Error(`no connection: ${JSON.stringify(program.output)}`);

    return Number(pid());
  }

  /** From now on, no packet arrives in either direction. */
  vanish(): void {
    this.#ip(`-n ${this.#name} link set inside down`);
  }

  close(): void {
    for (const { process: program } of this.#programs) program.kill('SIGKILL');
    for (const command of [`link del ${this.#name}`, `netns del ${this.#name}`]) {
      try {
        this.#ip(command);
      } catch {
        // The link was not made.
      }
    }
  }

  #ip(command: string): void {
    execFileSync('ip', command.split(' '), { stdio: 'ignore' });
  }
}

/** Lets a server accept logins from there. */
async function admit(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    const { rows } = await client.query<{ hba_file: string }>('show hba_file');
    await appendFile(rows[0]?.hba_file ?? '', `\nhost all all ${guestAddress}/32 scram-sha-256\n`);
    await client.query('select pg_reload_conf()');
  } finally {
    await client.end();
  }
}
