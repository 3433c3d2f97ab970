import type pg from 'pg';
import type { Server } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { connectFailure, OperatorError } from '../../operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { loadMigrations } from '../../postgres/migration-steps.ts';
import { compatibleFrom, readSchemaState } from '../schema/schema-steps.ts';
import { migrationSettings, migrationsDigest } from '../schema/template.ts';
import { headFingerprint } from '../schema/template-fingerprint.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import { becomeMember, endSessions } from '../schema/tenant-sessions.ts';
import { createDatabase } from './create-database.ts';
import {
  claimDatabase,
  closeDatabase,
  closeRole,
  guardedChange,
  openDatabase,
  RunReplacedError,
  stampNew,
} from './database-guard.ts';
import type { DatabaseStep } from './database-protocol.ts';
import {
  type CompleteSchema,
  condemnDatabase,
  condemnLeftovers,
  exchangeDatabases,
  forgetDatabase,
  isReserved,
  type KeptBy,
  type LockedTenant,
  readCurrent,
  readDatabases,
  recordFacts,
  recordSchema,
  reserveDatabase,
  type TenantDatabase,
} from './database-store.ts';
import { dropDatabase } from './drop-database.ts';
import { announceFence, closeFence, drainProcesses } from './fence.ts';
import { applySteps, type Fill, requireHeadSchema, requireKnownVersion } from './fill-database.ts';
import { HeldConnections } from './held-connections.ts';
import { inTransaction } from './in-transaction.ts';
import { LiveCopy } from './live-copy.ts';
import { findRemains } from './remains.ts';
import { serveTenant } from './serve-tenant.ts';

/** A new database: where, what of, and how it is filled. */
export interface Placement {
  readonly server: Server;
  readonly origin: string;
  /** The last migration of its data; undefined: that of this build. */
  readonly version?: string | undefined;
  /** True if it may be a warm one. */
  readonly mayBeWarm?: boolean;
  /** Undefined: a copy of the current database, which is served meanwhile. */
  readonly fill?: Fill;
}

/** What a run works with, beside its goal. */
export interface RunPlan {
  readonly placement?: Placement;
  /** An existing database. */
  readonly target?: TenantDatabase;
  readonly keptBy?: KeptBy | 'lost';
  /** How long the former database is kept. */
  readonly keepSeconds?: number;
  /** Maximum estimated wait of requests, in ms. */
  readonly maxPauseMs?: number;
}

/**
 * Behind the fence, the connections of a run are broken off when it takes longer than its maximum pause and this time.
 * Locks and sessions are waited for at most that long, so a server is silent.
 */
const maxSpareMs = 10_000;

/** Takes the steps of one run on PostgreSQL. */
export class DatabaseRun {
  /** How long requests have waited, at most. */
  pauseMs = 0;
  target: TenantDatabase | undefined;
  current: TenantDatabase | undefined;
  readonly #installation: Installation;
  readonly #control: pg.Client;
  readonly #tenant: LockedTenant;
  readonly #plan: RunPlan;
  readonly #epoch: number;
  readonly #connections = new HeldConnections();
  #copy: LiveCopy | undefined;
  #schema: CompleteSchema | undefined;
  #closedAt = 0;
  #overdue: NodeJS.Timeout | undefined;

  /** @param control holds the lock of the tenant */
  constructor(
    installation: Installation,
    control: pg.Client,
    tenant: LockedTenant,
    { plan, epoch, current }: { plan: RunPlan; epoch: number; current: TenantDatabase | undefined },
  ) {
    this.#installation = installation;
    this.#control = control;
    this.#tenant = tenant;
    this.#plan = plan;
    this.#epoch = epoch;
    this.current = current;
    this.target = plan.target;
  }

  async take(step: DatabaseStep): Promise<void> {
    await this.#steps[step]();
  }

  close(): Promise<void> {
    clearTimeout(this.#overdue);
    return this.#connections.close();
  }

  /** Returns how long the fence of this run has been closed, in ms; 0 if this run has closed none. */
  sinceFence(): number {
    return this.#closedAt === 0 ? 0 : Math.round(performance.now() - this.#closedAt);
  }

  get #guarded() {
    return { epoch: this.#epoch, guid: this.#tenant.guid };
  }

  readonly #steps: Readonly<Record<DatabaseStep, () => Promise<void>>> = {
    'condemn leftovers': () => this.#condemnLeftovers(),
    'drop leftovers': () => dropCondemned(this.#installation, this.#control, this.#tenant),
    reserve: () => this.#reserve(),
    create: () => this.#create(),
    fill: () => this.#fill(),
    complete: () => this.#complete(),
    'claim current': () => this.#unlessLost(() => this.#claim(this.#present())),
    'claim target': () => this.#claim(this.#chosen()),
    'upgrade target': () => this.#upgrade(),
    'announce fence': () => announceFence(this.#control, this.#tenant.guid, this.#chosen().server.id),
    'copy ahead': () => this.#copying().copyAhead(),
    'close fence': () => this.#closeFence(),
    'wait for processes': () => drainProcesses(this.#control, this.#tenant.guid),
    'close current': async () =>
      closeDatabase(await this.#connect(this.#present()), this.#guarded, this.#present().role),
    'require lost': () => this.#requireLost(),
    'end sessions': async () => endSessions(await this.#connect(this.#present()), this.#present().role),
    'copy changes': () => this.#copying().copyChanges(),
    exchange: () => this.#exchange(),
    'open current': () => this.#unlessLost(() => this.#open(this.#present())),
    serve: () => this.#serve(),
    condemn: () => this.#condemn(),
    drop: () => dropDatabase(this.#installation, this.#chosen(), this.#tenant.guid, true),
    forget: () => forgetDatabase(this.#control, this.#chosen().id),
  };

  /** Also drops them where that is possible, so that runs that fail again and again do not fill a server. */
  async #condemnLeftovers(): Promise<void> {
    await condemnLeftovers(this.#control, this.#tenant.id);
    await dropCondemned(this.#installation, this.#control, this.#tenant).catch(() => {});
    this.current = await readCurrent(this.#control, this.#tenant.id);
  }

  async #reserve(): Promise<void> {
    const { server, origin, mayBeWarm } = this.#placement();
    const warmDigest = mayBeWarm ? await migrationsDigest() : undefined;
    const reservation = { server, origin, warmDigest, epoch: this.#epoch };
    this.target = await reserveDatabase(this.#control, this.#installation.secrets, this.#tenant, reservation);
  }

  /** @throws {RunReplacedError} when another run has condemned the target, or the tenant is purged */
  async #requireReserved(): Promise<TenantDatabase> {
    const target = this.#chosen();
    if (await isReserved(this.#control, target.id, this.#epoch)) return target;
    throw new RunReplacedError();
  }

  async #create(): Promise<void> {
    const target = await this.#requireReserved();
    const { guid } = this.#tenant;
    await createDatabase(this.#installation, target, guid, this.#placement().version);
    await stampNew(await this.#connect(target), guid);
    this.#schema = await this.#headSchema(target);
  }

  async #fill(): Promise<void> {
    const target = await this.#requireReserved();
    const { fill = () => this.#copyCurrent() } = this.#placement();
    const facts = await fill(target);
    await recordFacts(this.#control, target.id, facts);
  }

  async #copyCurrent() {
    const { role } = this.#present();
    const [source, target] = [await this.#connect(this.#present()), await this.#connect(this.#chosen())];
    await becomeMember(source, role);
    const { maxPauseMs = 0 } = this.#plan;
    this.#copy = new LiveCopy({ source, target, run: this.#guarded, role, maxPauseMs });
    return this.#copy.copyAll();
  }

  async #complete(): Promise<void> {
    if (this.#schema && (await recordSchema(this.#control, this.#chosen().id, this.#schema))) return;
    throw new OperatorError(`another run has condemned the database of ${this.#tenant.slug} that this one has filled`);
  }

  async #claim(database: TenantDatabase): Promise<void> {
    const client = await this.#connect(database);
    await becomeMember(client, database.role);
    await claimDatabase(client, this.#guarded);
  }

  async #upgrade(): Promise<void> {
    const target = this.#chosen();
    const { schemaVersion, server } = target;
    if (schemaVersion === (await tenantHead())) return;
    await requireKnownVersion(schemaVersion);
    const client = await this.#connect(target);
    await guardedChange(client, this.#guarded, async () => {
      for (const [name, value] of Object.entries(migrationSettings(server)))
        await client.query('select set_config($1, $2, true)', [name, value]);
      const { applied } = await readSchemaState(client); // a killed run may have done it
      await applySteps(client, applied.at(-1) ?? null);
    });
    await requireHeadSchema(this.#installation, server, client);
    await recordSchema(this.#control, target.id, await this.#headSchema(target));
  }

  async #closeFence(): Promise<void> {
    this.#closedAt = performance.now();
    const maxMs = maxSpareMs + (this.#plan.maxPauseMs ?? 0);
    this.#overdue = setTimeout(() => this.#connections.breakOff(), maxMs);
    await this.#control.query(closeFence, [this.#tenant.guid]);
  }

  /** Also lets nobody into the lost database, should it come back. */
  async #requireLost(): Promise<void> {
    const { server, database, role } = this.#present();
    const { guid } = this.#tenant;
    await withConnection(this.#installation.servers.adminUrl(server), admin =>
      inTransaction(admin, async () => {
        const { hasRole } = await findRemains(admin, this.#present(), guid);
        if (hasRole) await closeRole(admin, { role, guid }, this.#epoch);
        const { exists } = await findRemains(admin, this.#present(), guid);
        if (exists) throw new OperatorError(`Server ${server.name} has database ${database}: nothing was changed`);
      }),
    );
  }

  async #exchange(): Promise<void> {
    const { keptBy = 'move', keepSeconds = 0 } = this.#plan;
    const former = this.current && { id: this.current.id, keptBy, keepSeconds };
    await exchangeDatabases(this.#control, this.#tenant, former, { id: this.#chosen().id, schema: this.#schema });
    this.current = this.#chosen();
  }

  async #open(database: TenantDatabase): Promise<void> {
    await openDatabase(await this.#connect(database), this.#guarded, database.role);
  }

  async #serve(): Promise<void> {
    await serveTenant(this.#control, this.#tenant);
    clearTimeout(this.#overdue);
    if (this.#closedAt === 0 || !this.target) return;
    this.pauseMs = this.sinceFence();
    await recordFacts(this.#control, this.target.id, { pauseMs: this.pauseMs });
  }

  async #condemn(): Promise<void> {
    if (await condemnDatabase(this.#control, this.#chosen().id)) return;
    throw new OperatorError(
      `${this.#chosen().database} is the database that ${this.#tenant.slug} has: it was not dropped`,
    );
  }

  /** A database that its server has lost lets nobody in: there is nothing to claim or to open. */
  async #unlessLost(work: () => Promise<void>): Promise<void> {
    if (!this.current) return;
    await work().catch(async error => {
      if (!['3D000', '55000'].includes(sqlState(error) ?? '') || !(await this.#isLost())) throw error;
    });
  }

  async #isLost(): Promise<boolean> {
    const { server } = this.#present();
    const find = (admin: pg.Client) => findRemains(admin, this.#present(), this.#tenant.guid);
    return !(await withConnection(this.#installation.servers.adminUrl(server), find)).exists;
  }

  async #headSchema({ server }: TenantDatabase): Promise<CompleteSchema> {
    const { control, servers } = this.#installation;
    const migrations = await loadMigrations('tenant');
    return {
      version: migrations.at(-1)?.name ?? null,
      compatibleFrom: compatibleFrom(migrations),
      fingerprint: await headFingerprint(control, server, servers.adminUrl(server)),
    };
  }

  #connect({ server, database }: TenantDatabase): Promise<pg.Client> {
    return this.#connections.to(databaseUrl(this.#installation.servers.adminUrl(server), database));
  }

  #placement(): Placement {
    return this.#plan.placement ?? missing('no new database is planned');
  }

  #present(): TenantDatabase {
    return this.current ?? missing('the tenant has no database');
  }

  #chosen(): TenantDatabase {
    return this.target ?? missing('no database is chosen');
  }

  #copying(): LiveCopy {
    return this.#copy ?? missing('nothing is copied');
  }
}

function missing(what: string): never {
  throw new Error(what);
}

/** Drops the condemned databases of a tenant. @throws when a server cannot be used, after the other databases */
export async function dropCondemned(
  installation: Installation,
  control: pg.Client,
  { id, guid, slug }: LockedTenant,
): Promise<void> {
  const { rows } = await control.query(
    `select from tenants where id = $1 and (status = 'provisioning' or purging_at is not null)`,
    [id],
  );
  const failures: unknown[] = [];
  for (const database of await readDatabases(control, id, ['condemned']))
    await dropDatabase(installation, database, guid, rows.length > 0).then(
      () => forgetDatabase(control, database.id),
      error => failures.push(notDropped(slug, database, error)),
    );
  if (failures.length > 0) throw failures[0];
}

/** Returns the error to report when a database could not be dropped. */
export function notDropped(slug: string, { server, database }: TenantDatabase, error: unknown): unknown {
  const reason = connectFailure(error);
  if (!reason) return error;
  const what = `Database ${database} of ${slug} on server ${server.name} could not be dropped (${reason})`;
  return new OperatorError(`${what}: when the server works, run the command again`, { cause: error });
}
