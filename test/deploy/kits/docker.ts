import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { readYaml } from '../read-deploy.ts';
import { beginServer, servers } from './postgres.ts';
import { fail, note, runInImage, scratch, tryService } from './programs.ts';

// Stands for docker: does what compose.yaml says with the programs and secrets of this machine.

interface Service {
  readonly command?: string[];
  readonly environment?: Record<string, string>;
  readonly secrets?: string[];
}
interface Compose {
  readonly services: Record<string, Service>;
  readonly secrets: Record<string, { file: string }>;
}

const [compose] = (await readYaml('compose.yaml')) as [Compose];
const args = process.argv.slice(3);
await note(`docker ${args.join(' ')}`);
const [file, verb] = [args[2], args[3]];
if (args[0] === 'build' && !(args[1] === '-f' && existsSync(args[2] ?? ''))) {
  fail(`no such file: ${args[2]}`);
}
if (args[0] === 'volume') process.stdout.write(`${join(scratch, 'volumes', args.at(-1) ?? '')}\n`);
if (args[0] === 'compose') {
  if (args[1] !== '-f' || file !== 'deploy/compose.yaml' || !existsSync(file)) {
    fail(`no such file: ${file}`);
  }
  if (verb === 'run') await runService(args.slice(4));
  if (verb === 'exec' && args[5] === 'psql') {
    await withConnection(servers[0]?.url ?? '', client => client.query(args.at(-1) ?? ''));
  }
  const named = args.slice(4).filter(arg => !arg.startsWith('-'));
  if (verb === 'up') {
    const started = named.length > 0 ? named : ['service-1', 'service-2'];
    for (const name of started.filter(each => each.startsWith('service-'))) {
      await tryService(['src/main.ts'], await variables(name));
    }
  }
}

/** Runs a service once. Options that take no value have one word. */
async function runService(words: string[]): Promise<void> {
  const at = words.findIndex(
    (word, index) => !word.startsWith('-') && words[index - 1] !== '--name',
  );
  const [name = '', ...command] = words.slice(at);
  if (!compose.services[name]) fail(`no such service: ${name}`);
  const password = await readFile(join(scratch, 'deploy/secrets/postgres-password'), 'utf8');
  const tls = ['tls-certificate', 'tls-key'].map(each => join(scratch, 'deploy/secrets', each)) as [
    string,
    string,
  ];
  for (const number of [0, 1]) {
    await beginServer(number, { name: 'operator', password, attributes: 'superuser' }, tls);
  }
  await runInImage(
    command.length > 0 ? command : (compose.services[name]?.command ?? []),
    await variables(name),
  );
}

/** The variables of a service, whose secrets are the files that compose.yaml names. */
async function variables(name: string): Promise<Record<string, string>> {
  const { environment = {}, secrets = [] } = compose.services[name] ?? {};
  const chosen = await readFile(join(scratch, 'deploy/.env'), 'utf8').catch(() => '');
  const values = Object.entries(environment).map(([key, value]) => {
    const secret = /^\/run\/secrets\/(.*)$/.exec(value)?.[1];
    if (secret === undefined) return [key, plainValue(value, chosen)];
    if (!secrets.includes(secret)) fail(`${name} has no secret ${secret}`);
    return [key, join(scratch, 'deploy', compose.secrets[secret]?.file ?? '')];
  });
  return { ...Object.fromEntries(values), DATA_DIR: join(scratch, 'data') };
}

/**
 * A variable of `deploy/.env` or its default, and the folder of a volume.
 * @param chosen the text of that file, in which the last line of a variable counts
 */
function plainValue(value: string, chosen: string): string {
  const [, name, otherwise = ''] = /^\$\{(\w+):-(.*)\}$/.exec(value) ?? [];
  if (name === undefined) return value.replace(/^\/backup$/, join(scratch, 'backup'));

  return [...chosen.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].at(-1)?.[1] ?? otherwise;
}
