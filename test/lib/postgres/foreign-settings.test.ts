import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import {
  connectionConfig,
  timeLimits,
  withConnection,
} from '../../../src/lib/postgres/connection.ts';
import { SessionClient } from '../../../src/lib/postgres/session-client.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { Client } from '../../support/client.ts';
import { type RunningScript, startScript } from '../../support/command-line.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { createPlainServer, type PlainServer } from '../../support/plain-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use, useFolder } from '../../support/use.ts';

interface Setting {
  name: string;
  kind: 'bool' | 'enum' | 'integer' | 'real' | 'string';
  value: string;
  min: string | null;
  words: string[] | null;
}

/** Values that differ from the default more than the least value or the last word would. */
const others: Readonly<Record<string, string>> = {
  search_path: 'elsewhere, pg_catalog',
  DateStyle: 'German, DMY',
  TimeZone: 'Asia/Kolkata',
  timezone_abbreviations: 'India',
  lc_monetary: 'POSIX',
  lc_numeric: 'POSIX',
  lc_time: 'POSIX',
  client_encoding: 'LATIN1',
  default_text_search_config: 'pg_catalog.german',
  default_tablespace: 'pg_default',
  temp_tablespaces: 'pg_default',
  createrole_self_grant: 'set, inherit',
  restrict_nonsystem_relation_kind: 'view, foreign-table',
  default_transaction_isolation: 'serializable',
  gin_fuzzy_search_limit: '1',
  jit_above_cost: '0',
  jit_inline_above_cost: '0',
  jit_optimize_above_cost: '0',
  // The least values would end the session before it could be set.
  statement_timeout: '1000',
  lock_timeout: '500',
  transaction_timeout: '1000',
  idle_session_timeout: '1000',
  idle_in_transaction_session_timeout: '1000',
};

/** Beginnings of names of settings that are left to the server, as patterns. */
const leftPrefixes = [
  'enable_',
  'cpu_',
  'jit',
  'geqo',
  'parallel_',
  'max_parallel_',
  'min_parallel_',
  'debug_',
  'log_(?!parameter)',
  'trace_',
  'vacuum_',
  'wal_',
  'logical_',
];

/** Ends of such names, after an underscore. */
const leftSuffixes = [
  'cost',
  'mem',
  'limit',
  'concurrency',
  'collapse_limit',
  'statistics_target',
  'fraction',
  'buffers',
  'factor',
  'multiplier',
  'after',
  'io',
  'threshold',
  'combine_limit',
];

/** Further such names. */
const leftNames = [
  'application_name',
  'backslash_quote',
  'backend_flush_after',
  'commit_siblings',
  'constraint_exclusion',
  'default_text_search_config',
  'default_toast_compression',
  'effective_cache_size',
  'escape_string_warning',
  'file_copy_method',
  'ignore_checksum_failure',
  'icu_validation_level',
  'optimize_bounded_sort',
  'parallel_leader_participation',
  'plan_cache_mode',
  'scram_iterations',
  'md5_password_warnings',
  'min_eager_agg_group_size',
  'stats_fetch_consistency',
  'synchronize_seqscans',
  'temp_file_limit',
  'timezone_abbreviations',
  'vacuum_buffer_usage_limit',
  'zero_damaged_pages',
  'allow_in_place_tablespaces',
];

/**
 * Settings that stay as the server has them: how queries are planned and run, what is logged,
 * and what is for other programs.
 */
const leftToServer = new RegExp(
  `^(${leftPrefixes.join('|')})|_(${leftSuffixes.join('|')})$|^(${leftNames.join('|')})$`,
);

/**
 * Settings that only a superuser makes, and that change no result: what is logged, counted and
 * checked. Commands prove nothing by counters while `track_counts` is off.
 */
const leftToSuperusers = new RegExp(
  [
    '^(log|track|debug|wal)_',
    '^(allow_|ignore_|zero_)',
    '^backtrace_functions$',
    '^commit_delay$',
    '^compute_query_id$',
    '^deadlock_timeout$',
    '^dynamic_library_path$',
    '^event_triggers$',
    '^extension_control_path$',
    '^jit_dump_bitcode$',
    '^lc_messages$',
    '^lo_compat_privileges$',
    '^max_stack_depth$',
    '^output_plugin_libraries$',
    '^session_preload_libraries$',
    '^temp_file_limit$',
    '^timing_clock_source$',
    '^update_process_title$',
  ].join('|'),
);

/**
 * Left out: `local_preload_libraries` loads code; `default_transaction_read_only` is a lock,
 * which is refused by its name at every door.
 */
const leftOut = [
  'local_preload_libraries',
  'default_transaction_read_only',
  'transaction_isolation',
];
const cannotBeDefaults = [...leftOut, 'transaction_read_only', 'transaction_deferrable'];
/** Settings whose other value PostgreSQL 19 refuses. */
const refusedFrom19 = ['standard_conforming_strings'];
/** The settings would write every statement into the log of the server, many times. */
const noise = /^(debug_print|trace_)/;

function otherValue({ name, kind, value, min, words }: Setting): string | undefined {
  if (others[name] !== undefined) return others[name];
  if (kind === 'bool') return value === 'on' ? 'off' : 'on';
  if (kind === 'enum') return words?.findLast(word => word !== value);
  if (kind === 'string' || min === null) return undefined;
  return Number(min) === Number(value) ? String(Number(min) + 1) : min;
}

describe('settings of a server, a role or a database', () => {
  const folder = useFolder();
  const server = use(() => createPlainServer('createdb createrole'));
  let foreign: [name: string, value: string][];

  before(async () => {
    const settings = await server.sql<Setting>(
      `select name, vartype as kind, setting as value, min_val as min, enumvals as words from pg_settings
        where context = 'user' order by name`,
    );
    const [version] = await server.sql<{ number: number }>(
      `select current_setting('server_version_num')::int as number`,
    );
    const refused = (version?.number ?? 0) >= 190_000 ? refusedFrom19 : [];
    foreign = settings
      .filter(({ name }) => ![...cannotBeDefaults, ...refused].includes(name) && !noise.test(name))
      .flatMap(setting => {
        const value = otherValue(setting);
        return value === undefined ? [] : [[setting.name, value] as [string, string]];
      });
    expect(foreign.length).to.be.greaterThan(120);
  });

  /**
   * Statements that make the foreign values the default of a role, a database or the server.
   */
  const settingStatements = (target: string): string[] =>
    foreign.map(([name, value]) => {
      const list = /search_path|temp_tablespaces|createrole_self_grant|restrict_/.test(name);
      const text = list
        ? value
            .split(', ')
            .map(item => pg.escapeLiteral(item))
            .join(', ')
        : pg.escapeLiteral(value);
      return `${target} set ${name} = ${text}`;
    });

  async function impose(on: PlainServer, target: string): Promise<void> {
    const refused: string[] = [];
    await withConnection(on.superuserUrl('postgres'), async client => {
      for (const statement of settingStatements(target)) {
        await client.query(statement).catch(() => refused.push(statement));
      }
    });
    expect(refused.slice(0, 5)).to.deep.equal([]);
    if (target === 'alter system') await on.sql('select pg_reload_conf()');
  }

  /** Returns the settings of a session of each kind, by `kind name`. */
  async function readSessions(): Promise<Map<string, string>> {
    const values = new Map<string, string>();
    for (const kind of Object.keys(timeLimits) as (keyof typeof timeLimits)[]) {
      const client = new SessionClient(connectionConfig(server.url('postgres'), kind));
      await client.connect();
      const { rows } = await client.query<{ name: string; setting: string }>(
        `select name, setting from pg_settings where context = 'user'`,
      );
      for (const { name, setting } of rows) values.set(`${kind} ${name}`, setting);
      await client.end();
    }
    return values;
  }

  it('settings of others change nothing of a session but how the server plans, runs and logs its statements', async () => {
    const clean = await readSessions();

    for (const target of ['alter database postgres', 'alter role operator', 'alter system']) {
      await impose(server, target);
      if (target === 'alter system') {
        const jit = foreign.find(([name]) => name === 'jit')?.[1];
        await eventually(
          async () => (await server.sql<{ jit: string }>('show jit'))[0]?.jit === jit,
        );
      }
      const sessions = await readSessions();
      await server.sql(`${target} reset all`);

      const changed = [...sessions]
        .filter(([name, value]) => value !== clean.get(name))
        .map(([name]) => name);
      const relied = changed.filter(name => !leftToServer.test(name.split(' ')[1] ?? ''));
      expect(changed.length, target).to.be.greaterThan(100);
      expect([...new Set(relied.map(name => name.split(' ')[1]))], target).to.deep.equal([]);
    }
    await server.sql('select pg_reload_conf()');
  });

  it('a default of superusers that lets no trigger run is overridden, or refused by its name at every door', async () => {
    const { sql, url, superuserUrl } = server;
    const superusers = await sql<{ name: string }>(
      `select name from pg_settings where context = 'superuser' order by name`,
    );
    const relied = superusers.map(({ name }) => name).filter(name => !leftToSuperusers.test(name));
    expect(relied).to.deep.equal(['session_replication_role']);

    for (const target of ['alter database postgres', 'alter role operator', 'alter role all']) {
      // given
      await sql(`${target} set session_replication_role = replica`);

      // when a login may set it
      const { rows } = await withConnection(superuserUrl('postgres'), client =>
        client.query('show session_replication_role'),
      );
      // then
      expect(rows, target).to.deep.equal([{ session_replication_role: 'origin' }]);

      // when a login may not
      const environment = { DATABASE_URL: url('postgres'), MASTER_KEY: 'ab'.repeat(32) };
      for (const [script, ...args] of [
        ['src/main.ts'],
        ['scripts/backoffice.ts', 'control', 'migrate'],
        ['scripts/backoffice.ts', 'list'],
      ] as const) {
        const { code, stderr } = await runCommand(script, args, environment);
        // then
        expect(code, `${target}: ${stderr}`).to.equal(1);
        expect(stderr, target).to.include('reset session_replication_role where it is set');
      }
      await sql(`${target} reset session_replication_role`);
    }
  });

  for (const scope of ['server', 'role', 'database'] as const) {
    it(`settings that are defaults of the ${scope} change nothing in the life of a tenant`, async () => {
      const servers = await Promise.all([
        createPlainServer('createdb createrole'),
        createOtherServer(),
      ]);
      let service: RunningScript | undefined;

      try {
        service = await live(servers, scope);
      } finally {
        service?.process.kill('SIGTERM');
        await service?.ended;
        await Promise.all(servers.map(each => each.close()));
      }
    });
  }

  /** Starts a server that is no copy of a plain one. */
  async function createOtherServer(): Promise<PlainServer> {
    const { url, sql, log, close } = await createDedicatedServer();
    const login = { user: 'operator', password: randomBytes(18).toString('base64url') };
    await sql(`create role operator login createdb createrole password '${login.password}';
               grant connect on database postgres, template1 to public`);

    return {
      url: database => databaseUrl(url, database, login),
      superuserUrl: database => databaseUrl(url, database),
      sql,
      log,
      close,
    };
  }

  /**
   * Lets two tenants live on two servers, whose defaults are foreign.
   * @returns the running service
   */
  async function live(
    [first, second]: [PlainServer, PlainServer],
    scope: 'server' | 'role' | 'database',
  ): Promise<RunningScript> {
    const backups = join(folder, scope);
    await mkdir(backups);
    const environment: Record<string, string> = {
      DATABASE_URL: first.url("o'hara & söhne"), // quoted wherever its name is used
      MASTER_KEY: randomBytes(32).toString('base64'),
      ...(await backupSettings(backups)),
    };
    const run = async (args: string[], input = ''): Promise<string> => {
      const { code, stdout, stderr } = await runCommand(
        'scripts/backoffice.ts',
        args,
        environment,
        input,
      );
      expect(code, `${args.join(' ')}: ${stderr}${stdout}`).to.equal(0);
      return stdout;
    };
    const imposeOn = async (on: PlainServer): Promise<void> => {
      const [named] = await on.sql<{ databases: string[]; roles: string[] }>(
        `select array(select datname::text from pg_database where datallowconn and datname !~ 'template') as databases,
                array(select rolname::text from pg_roles where rolcanlogin and not rolsuper) as roles`,
      );
      if (scope === 'server') await impose(on, 'alter system');
      const names = { server: [], role: named?.roles ?? [], database: named?.databases ?? [] }[
        scope
      ];
      for (const name of names) await impose(on, `alter ${scope} ${pg.escapeIdentifier(name)}`);
    };

    // given servers that somebody else has set up
    await Promise.all([imposeOn(first), imposeOn(second)]);
    await run(['control', 'migrate']);
    await imposeOn(first);
    await run(['server', 'add', 'second', '--capacity', '0'], second.url('postgres'));
    const tenants = await Promise.all(
      ['acme', 'globex'].map(async slug =>
        JSON.parse(
          await run([
            'provision',
            slug,
            '--name',
            slug,
            '--admin-email',
            `a@${slug}.test`,
            '--json',
            '--server',
            'default',
          ]),
        ),
      ),
    );
    await imposeOn(first);

    // when they are served
    const service = startScript('src/main.ts', [], {
      ...environment,
      PORT: '0',
      MANAGEMENT_PORT: '0',
      SHUTDOWN_DELAY: '0s',
    });
    try {
      const hasStarted = () =>
        service.output.stdout.includes('"event":"listening"') || service.process.exitCode !== null;
      await eventually(hasStarted, 60_000);
      expect(service.process.exitCode, service.output.stderr).to.equal(null);
      const port = /"event":"listening","port":(\d+)/.exec(service.output.stdout)?.[1];
      const anonymous = new Client(`http://127.0.0.1:${port}`);
      const [acme, globex] = await Promise.all(
        tenants.map(async ({ guid, admin }) => {
          const { status, body } = await anonymous.post('/api/v1/auth/login', admin, {
            'X-Tenant': guid,
          });
          expect(status, JSON.stringify(body)).to.equal(200);
          return new Client(`http://127.0.0.1:${port}`, body);
        }),
      );
      if (!acme || !globex) throw new Error('nobody has logged in');
      await useService(acme);

      // and operated
      await run(['export', 'acme', '--to', join(backups, 'acme.tar')]);
      await run(['backup', 'init']);
      expect(await run(['backup', 'run', '--all']))
        .to.match(/acme: archived/)
        .and.to.match(/globex: archived/);
      const { body: made } = await acme.post('/api/v1/Currency', {
        Code: 'ZZZ',
        Name: 'After the archive',
      });
      expect(made.Code).to.equal('ZZZ');
      await run(['restore', 'acme', '--archive', 'latest']);
      expect(await run(['restore', 'diff', 'acme'])).to.match(/currencies/i);
      await run(['move', 'acme', '--to', 'second']);
      await imposeOn(second);
      await useService(acme);

      // then nothing is wrong, and nothing of one tenant is in the other
      const { findings } = JSON.parse(
        (await runCommand('scripts/backoffice.ts', ['doctor', '--json'], environment)).stdout,
      );
      const errors = findings.filter(({ severity }: { severity: string }) => severity === 'error');
      expect(errors).to.deep.equal([]);
      const { status } = await globex.get('/api/v1/Currency');
      expect(status, 'of an empty list').to.equal(404);
      return service;
    } catch (error) {
      service.process.kill('SIGKILL');
      throw error;
    }
  }

  /**
   * Creates, reads, searches, imports and exports, with texts, numbers and times that settings
   * could change.
   */
  async function useService(client: Client): Promise<void> {
    const code = `C${String.fromCharCode(65 + (lastCode % 26), 65 + Math.floor(lastCode++ / 26))}`;
    const created = await client.post('/api/v1/Currency', {
      Code: code,
      Name: 'Złoty Ünit',
      DecimalPlaces: 3,
    });
    expect(created.status, JSON.stringify(created.body)).to.equal(201);
    expect(created.body).to.include({ Code: code, Name: 'Złoty Ünit', DecimalPlaces: 3 });

    const entity = await client.post('/api/v1/Entities', {
      Name: `Größe ${code}`,
      EntityType: 'customer',
    });
    expect(entity.status, JSON.stringify(entity.body)).to.equal(201);
    const found = await client.get(`/api/v1/Entities?q=${encodeURIComponent(`größe ${code}`)}`);
    expect(found.body.map(({ Id }: { Id: number }) => Id)).to.deep.equal([entity.body.Id]);

    const file = `Code;Name\nX${code.slice(1)};Imported\n`;
    const imported = await client.post('/api/v1/Imports?resource=Currency', file, {
      'Content-Type': 'text/csv',
    });
    expect(imported.body, JSON.stringify(imported.body)).to.include({ Applied: true, Created: 1 });

    const listed = await client.get('/api/v1/Currency', { Accept: 'text/csv' });
    expect(listed.status).to.equal(200);
    const audit = await client.get('/api/v1/AuditLog?limit=1');
    expect(audit.status, JSON.stringify(audit.body)).to.equal(200);
  }

  let lastCode = 0;
});
