import { type EntityManager, type MikroORM, PostgreSqlConnection, PostgreSqlDriver } from '@mikro-orm/postgresql';
import type pg from 'pg';
import { dropDeadConnections } from '../database-pool.ts';

/** Reached the database of another tenant, or none: its answers must not be used. */
export class TenantIdentityError extends Error {
  override name = 'TenantIdentityError';
  readonly code = 'TENANT_IDENTITY';
}

/** Which tenant a connection must find inside the database, and at which version. */
export interface ExpectedIdentity {
  guid: string;
  schemaVersion: string;
}

/** The schema inside the database is not the one that this build works with. */
export class TenantVersionError extends Error {
  override name = 'TenantVersionError';
  readonly code = 'TENANT_VERSION';
}

export interface TenantConnectionOptions {
  url: string;
  expected: ExpectedIdentity;
  connections: number;
  connectionTimeoutMs: number;
}

const statementTimeoutMs = 8_000; // a request is answered within 10 s
const silenceMs = statementTimeoutMs + 1_000;
const idleConnectionMs = 10_000;

/** A connection pool that stays closed once closed; MikroORM's own would reopen on the shared configuration's database. */
class TenantConnection extends PostgreSqlConnection {
  #closed = false;

  override createKyselyDialect(overrides: Parameters<PostgreSqlConnection['createKyselyDialect']>[0]) {
    if (this.#closed) throw new Error('this tenant database has been closed');
    return super.createKyselyDialect(overrides);
  }

  override async close(force?: boolean): Promise<void> {
    this.#closed = true;
    await super.close(force);
  }
}

/**
 * One tenant's way to its own database. All tenants share the metadata of one MikroORM; what is the tenant's own is
 * this driver and its few connections. It leans on protected members of MikroORM, so the version is pinned and a test
 * asks the database for its name.
 */
export class TenantDriver extends PostgreSqlDriver {
  declare protected readonly connection: TenantConnection;
  declare protected readonly platform: ReturnType<PostgreSqlDriver['getPlatform']>;

  constructor(orm: MikroORM, { url, expected, connections, connectionTimeoutMs }: TenantConnectionOptions) {
    super(orm.config);
    const driverOptions: pg.PoolConfig & { verify: typeof verify; onPoolCreated: (pool: pg.Pool) => void } = {
      connectionString: url,
      application_name: 'backoffice-api',
      max: connections,
      idleTimeoutMillis: idleConnectionMs,
      connectionTimeoutMillis: connectionTimeoutMs,
      statement_timeout: statementTimeoutMs,
      idle_in_transaction_session_timeout: statementTimeoutMs,
      keepAlive: true,
      verify,
      onPoolCreated: pool => dropDeadConnections(pool, silenceMs),
    };
    const { pathname } = new URL(url);
    this.connection = new TenantConnection(orm.config, {
      dbName: decodeURIComponent(pathname.slice(1)),
      driverOptions,
    });
    this.platform = orm.driver.getPlatform();
    this.setMetadata(orm.getMetadata());

    /** Runs on every new connection, before anything else may use it. */
    function verify(client: pg.PoolClient, done: (error?: Error) => void): void {
      client
        .query<{ guid: string; version: string | null }>(
          'select guid, (select max(name) from migrations) as version from tenant_identity',
        )
        .then(({ rows: [found] }) => {
          if (found?.guid !== expected.guid) done(new TenantIdentityError('the database belongs to another tenant'));
          else if (found.version !== expected.schemaVersion)
            done(new TenantVersionError(`the database is at ${found.version}`));
          else done();
        }, done);
    }
  }

  /** A new unit of work on this database; it never looks for another one in an async context. */
  entityManager(): EntityManager {
    return this.createEntityManager(false) as EntityManager;
  }
}
