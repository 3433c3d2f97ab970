import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbeddedPostgres } from '../../../src/lib/embedded/postgres.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { nodeOptions, root, type ScriptResult, shellLine } from '../../support/command-line.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { quickSettings } from '../../support/test-server.ts';
import { PrintedLines } from '../engines/printed-lines.ts';

/** A machine on which somebody pastes the lines of a page. */
export interface Kit {
  /**
   * Stands for the root of the machine, and is the copy of the repository in which the lines
   * run.
   */
  readonly scratch: string;
  /** Runs a script in Bash. It ends with the first line that fails. */
  run(script: string): Promise<ScriptResult>;
  /** Returns the calls that the stand-in got. */
  calls(): Promise<string>;
  close(): Promise<void>;
}

/** Folders of a pod that are in the scratch folder instead. */
const folders = /(?<![\w./])\/(run\/secrets)\//g;

/**
 * Makes a machine with PostgreSQL servers, and a stand-in for `kubectl`.
 * @param hosts for each PostgreSQL server, the names that it has in the network of the kit
 * @param store URL of a store with the protocol of S3, which stands for that of Amazon
 */
export async function createKit(hosts: readonly (readonly string[])[], store = ''): Promise<Kit> {
  const scratch = await mkdtemp(join(tmpdir(), 'backoffice-kit-'));
  const servers = await Promise.all(hosts.map(startServer));
  const bin = join(scratch, 'bin');
  await mkdir(bin);
  await cp(join(root, 'deploy'), join(scratch, 'deploy'), { recursive: true });

  const standIn = [join(import.meta.dirname, 'kubectl.ts'), 'kubectl'];
  const command = shellLine([process.execPath, ...nodeOptions(), ...standIn]);
  await writeFile(join(bin, 'kubectl'), `#!/bin/bash\nexec ${command} "$@"\n`, { mode: 0o755 });

  const network = servers.flatMap(({ url }, number) =>
    (hosts[number] ?? []).map(host => [host, Number(new URL(url).port)] as const),
  );

  const environment = {
    PATH: `${bin}:${process.env.PATH}`,
    HOME: scratch,
    TEST_RUN: process.env.TEST_RUN,
    KIT_SCRATCH: scratch,
    KIT_SERVERS: JSON.stringify(servers.map(({ url, folder }) => ({ url, folder }))),
    KIT_STORE: store,
    KIT_NETWORK: JSON.stringify(Object.fromEntries(network)),
  };

  return {
    scratch,
    run: script =>
      new Promise(resolve => {
        const text = `set -e -o pipefail\n${onMachine(script, scratch)}`;
        const child = execFile(
          'bash',
          ['-c', text],
          { cwd: scratch, env: environment },
          (error, stdout, stderr) =>
            resolve({ code: error ? Number(error.code) : 0, signal: null, stdout, stderr }),
        );
        child.stdin?.end();
      }),
    calls: () => readFile(join(scratch, 'calls'), 'utf8'),
    close: async () => {
      await Promise.all(servers.map(({ leave }) => leave()));
      for (const folder of [scratch, ...servers.map(each => each.folder)]) {
        await rm(folder, { recursive: true, force: true });
      }
    },
  };
}

async function startServer(): Promise<{ folder: string; url: string; leave(): Promise<void> }> {
  const folder = await makeServerFolder('kit');
  const settings = [...quickSettings, 'autovacuum=off', 'max_connections=200'];
  const postgres = await startEmbeddedPostgres(folder, { settings });
  // A PostgreSQL that is installed elsewhere has this right.
  await withConnection(postgres.url, client =>
    client.query('grant connect on database postgres to public'),
  );

  return { folder, url: postgres.url, leave: () => postgres.leave() };
}

/** Returns a text in which absolute paths of a pod are those of the scratch folder. */
export function onMachine(text: string, scratch: string): string {
  return text.replaceAll(folders, `${scratch}/$1/`);
}

/** Returns the shell lines of a page under a heading of level 2. */
export function shellLines(page: string, heading: string): string {
  return new PrintedLines(page, heading).blocks.join('\n');
}
