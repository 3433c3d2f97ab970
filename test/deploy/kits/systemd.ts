import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { appendFile, mkdir, mkdtemp, readFile, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { onMachine } from './kit.ts';
import { servers } from './postgres.ts';
import { fail, note, runProgram, scratch, tryService } from './programs.ts';

// Stands for systemctl, systemd-run, useradd, install and psql on a host: runs units with the
// programs of this machine.

/** The lines of a unit, or the properties of a transient one. */
type Lines = readonly (readonly [name: string, value: string])[];

const [name = '', ...args] = process.argv.slice(2);
await note(`${name} ${args.join(' ')}`);
const logins = join(scratch, 'logins');
const standIns: Record<string, () => Promise<unknown>> = {
  useradd: () => appendFile(logins, `${args.at(-1)}\n`),
  psql: async () =>
    withConnection(servers[0]?.url ?? '', async client => client.query(await text(process.stdin))),
  install,
  'systemd-run': runTransient,
  systemctl: async () => {
    if (args[0] !== 'enable' && args[0] !== 'start') return;

    for (const unit of args.filter(arg => /^backoffice/.test(arg))) {
      await startUnit(unit);
    }
  },
};
await standIns[name]?.();

/** Copies files as `install` does, with the folders of this machine in their text. */
async function install(): Promise<void> {
  const owner = args.indexOf('-o');
  const own = args.filter((_, index) => owner < 0 || (index !== owner && index !== owner + 1));
  execFileSync('/usr/bin/install', own, { stdio: 'inherit' });
  const target = args.at(-1) ?? '';
  const sources = args.includes('-d') ? [] : own.slice(own.indexOf('-m') + 2, -1);
  for (const source of sources) {
    const file = (await stat(target)).isDirectory() ? join(target, basename(source)) : target;
    await writeFile(file, onMachine(await readFile(file, 'utf8'), scratch));
  }
}

async function runTransient(): Promise<void> {
  const at = args.findIndex(arg => !arg.startsWith('-'));
  const properties = args.slice(0, at).flatMap((arg): Lines => {
    const [, property, key = '', value = ''] = /^--(property=)?([\w-]+)=(.*)$/.exec(arg) ?? [];
    if (key === 'uid') return [['User', value]];
    return property ? [[key, value]] : [];
  });
  await runProgram(args[at] ?? '', args.slice(at + 1), await variables(properties));
}

/** Starts a unit: runs each of its commands to the end, or tries the service. */
async function startUnit(unit: string): Promise<void> {
  const lines = await unitLines(unit);
  const values = await variables(lines);
  for (const [, command] of lines.filter(([key]) => key === 'ExecStart')) {
    const [program = '', ...words] = command.split(' ');
    const isService = lines.some(([key, value]) => key === 'Type' && value === 'exec');
    if (isService) await tryService(words.slice(-1), { ...values, PROCESSES: '1' });
    else await runProgram(program, words, values);
  }
}

/** Returns the lines of a unit, or of the one that a timer starts. */
async function unitLines(unit: string): Promise<Lines> {
  const name = unit.replace(/\.(service|timer)$/, '');
  const file = join(scratch, 'etc/systemd/system', `${name}.service`);
  const lines = (await readFile(file, 'utf8')).split('\n').filter(line => /^\w+=/.test(line));
  return lines.map(line => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]);
}

/** Returns the variables of a unit, whose login and files have to be there. */
async function variables(lines: Lines): Promise<Record<string, string>> {
  const of = (key: string): string[] =>
    lines.filter(([each]) => each === key).map(([, value]) => value);

  const known = existsSync(logins) ? (await readFile(logins, 'utf8')).split('\n') : [];
  for (const user of of('User')) {
    if (!known.includes(user)) fail(`Failed to determine credentials for user ${user}`);
  }

  const credentials = await mkdtemp(join(scratch, 'credentials-'));
  for (const [id = '', file = ''] of of('LoadCredential').map(value => value.split(':'))) {
    await writeFile(join(credentials, id), await readFile(file), { mode: 0o400 });
  }
  for (const folder of of('StateDirectory')) {
    await mkdir(join(scratch, 'var/lib', folder), { recursive: true });
  }

  const texts = await Promise.all(of('EnvironmentFile').map(file => readFile(file, 'utf8')));
  const folders = {
    '%d': credentials,
    '%S': join(scratch, 'var/lib'),
    '%C': join(scratch, 'var/cache'),
  };
  const own = of('Environment').map(value =>
    Object.entries(folders).reduce((text, [name, folder]) => text.replace(name, folder), value),
  );
  const all = [...own, ...texts.flatMap(each => each.split('\n'))].filter(line =>
    /^\w+=/.test(line),
  );

  return {
    ...Object.fromEntries(
      all.map(line => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
    ),
    CREDENTIALS_DIRECTORY: credentials,
  };
}
