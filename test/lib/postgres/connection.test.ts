import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import pg from 'pg';
import { databaseNameOf, databaseUrl } from '../../../src/control/server-urls.ts';
import { normalPostgresUrl } from '../../../src/lib/config/postgres-url.ts';
import { connectionConfig, withConnection } from '../../../src/lib/postgres/connection.ts';
import { sqlState } from '../../../src/lib/postgres/database-error.ts';
import { SessionClient } from '../../../src/lib/postgres/session-client.ts';
import { root } from '../../support/command-line.ts';
import { postgresUrl } from '../../support/test-server.ts';

describe('connections to PostgreSQL', () => {
  const settingsOf = (names: string[]) => async (client: pg.Client) =>
    (
      await client.query<{ values: string[] }>(
        'select array(select current_setting(name, true) from unnest($1::text[]) name) as values',
        [names],
      )
    ).rows[0]?.values;

  it('a session has the time limits of its kind, the settings of its work, and what every session relies on', async () => {
    const read = settingsOf([
      'jit',
      'statement_timeout',
      'lock_timeout',
      'application_name',
      'timezone',
      'app.group',
    ]);
    const settings = { jit: 'off', 'app.group': "it's" };

    const values = await withConnection(postgresUrl(), read, { kind: 'migrations', settings });

    expect(values).to.deep.equal(['off', '5min', '5s', 'backoffice-migrations', 'UTC', "it's"]);
  });

  it('options in a URL reach the server as they are, and what a session relies on holds beside them', async () => {
    const options = encodeURIComponent('-c work_mem=1234kB -c search_path=elsewhere');
    const url = `${postgresUrl()}?options=${options}&application_name=other`;

    const values = await withConnection(
      url,
      settingsOf(['work_mem', 'search_path', 'application_name']),
    );

    expect(values).to.deep.equal(['1234kB', 'public', 'backoffice-operator']);
  });

  it('a connection is the one that its URL names, whatever the shell and its password file say', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'shell-'));
    const passwords = join(folder, 'pgpass');
    const { hostname, port, username, password } = new URL(postgresUrl());
    await writeFile(passwords, `*:*:*:*:${password}\n`, { mode: 0o600 });

    const shell = {
      PGHOST: 'nowhere.invalid',
      PGHOSTADDR: '192.0.2.1',
      PGPORT: '1',
      PGUSER: 'nobody',
      PGDATABASE: 'nothing',
      PGPASSWORD: password,
      PGPASSFILE: passwords,
      PGSSLMODE: 'verify-full',
      PGSSLNEGOTIATION: 'direct',
      PGOPTIONS: '-c search_path=elsewhere -c statement_timeout=1',
      PGAPPNAME: 'shell',
      PGCLIENTENCODING: 'LATIN1',
      PGBINARY: '1',
      PGREPLICATION: 'database',
      PGTZ: 'Asia/Kolkata',
      PGDATESTYLE: 'German',
      PGSERVICE: 'main',
      PGTARGETSESSIONATTRS: 'standby',
      PGCONNECT_TIMEOUT: '1',
    };

    const before = { ...process.env };
    Object.assign(process.env, shell);
    try {
      const values = await withConnection(
        postgresUrl(),
        settingsOf(['search_path', 'datestyle', 'application_name']),
      );
      expect(values).to.deep.equal(['public', 'ISO, MDY', 'backoffice-operator']);

      const withoutPassword = `postgresql://${username}@${hostname}:${port}/postgres`;
      const error = await withConnection(withoutPassword, async () => {}).catch(
        (reason: unknown) => reason,
      );
      expect(sqlState(error)).to.equal('NO_PASSWORD');
    } finally {
      for (const name of Object.keys(shell)) delete process.env[name];
      Object.assign(process.env, before);
      await rm(folder, { recursive: true });
    }
  });

  it('a database may have any letter in its name', async () => {
    for (const name of ["o'hara & söhne", 'a/b?c#d', '50% "off"', 'sp ace']) {
      await withConnection(postgresUrl(), client =>
        client.query(`create database ${pg.escapeIdentifier(name)}`),
      );

      try {
        const url = normalPostgresUrl(databaseUrl(postgresUrl(), name));
        const { rows } = await withConnection(url, client =>
          client.query('select current_database() as name'),
        );

        expect(rows).to.deep.equal([{ name }]);
        expect(databaseNameOf(url)).to.equal(name);
      } finally {
        await withConnection(postgresUrl(), client =>
          client.query(`drop database ${pg.escapeIdentifier(name)}`),
        );
      }
    }
  });

  it('only SessionClient makes connections', async () => {
    const files = await readdir(join(root, 'src'), { recursive: true });
    const paths = files.filter(file => file.endsWith('.ts')).map(file => join(root, 'src', file));
    const texts = await Promise.all(paths.map(path => readFile(path, 'utf8')));

    const others = paths.filter((_, index) =>
      /new (pg\.)?Client\(|new ScramClient\(|connectionString/.test(texts[index] ?? ''),
    );
    const pools = paths.filter((_, index) =>
      /new (pg\.)?Pool\(\{(?!\s*\.\.\.connectionConfig\()/.test(texts[index] ?? ''),
    );

    expect(others).to.deep.equal([]);
    expect(pools).to.deep.equal([]);
  });

  describe('connections to a server that accepts and never responds', () => {
    let silent: Server;
    const sockets = new Set<Socket>();

    before(async () => {
      silent = createServer(socket => sockets.add(socket)).listen(0, '127.0.0.1');
      await once(silent, 'listening');
    });
    after(() => {
      for (const socket of sockets) socket.destroy();
      silent.close();
    });

    it('a connect timeout of a client has the code ETIMEDOUT', async () => {
      const { port } = silent.address() as { port: number };
      const config = connectionConfig(
        `postgresql://user:password@127.0.0.1:${port}/any`,
        'operator',
      );
      const client = new SessionClient({ ...config, connectionTimeoutMillis: 50 });

      const error = await client.connect().then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(sqlState(error)).to.equal('ETIMEDOUT');
    });
  });
});
