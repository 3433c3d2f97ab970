import type pg from 'pg';
import type { Server } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { holdImports } from '../../../sales/imports/import-lock.ts';
import { endOtherSessions, sessionsLeft } from '../../schema/other-sessions.ts';
import { becomeMember, endSessionsOf } from '../../schema/tenant-sessions.ts';
import {
  type GivenNumbers,
  goOnAfter,
  readGivenNumbers,
  readKnownNumbers,
  recordNumbers,
  skippedNumbers,
} from '../copy/carry-numbers.ts';
import { readHeadSchema, upgradeDatabase } from '../copy/fill-database.ts';
import { keepWebhooks } from '../copy/keep-webhooks.ts';
import { LiveCopy } from '../copy/live-copy.ts';
import { reserveRoom } from '../copy/room.ts';
import {
  beginFeedEra,
  changeInEpoch,
  claimDatabase,
  closeDatabase,
  type Feed,
  nameSuccessor,
  openDatabase,
  readFeed,
  requireLastRun,
  requireReserved,
  stampNew,
} from '../store/database-stamp.ts';
import {
  type LockedTenant,
  readCurrent,
  recordFacts,
  type TenantDatabase,
} from '../store/database-store.ts';
import {
  type CompleteSchema,
  exchangeDatabases,
  recordSchema,
} from '../store/exchange-databases.ts';
import { announceFence, closeFence, drainProcesses, serveTenant } from '../store/fence.ts';
import { HeldConnections } from '../store/held-connections.ts';
import { createDatabase, NameTakenError, reserveDatabase } from './create-database.ts';
import type { DatabaseStep } from './database-protocol.ts';
import {
  condemnDatabase,
  condemnLeftovers,
  dropCondemned,
  dropDatabase,
  forgetDatabase,
  forgetReserved,
} from './drop-database.ts';
import { closeLost, unlessLost } from './lost-database.ts';
import { type PlacedCopy, RunPause, type RunPlan } from './run-plan.ts';

/** A function for each step, under its name. */
type Steps = Readonly<Record<DatabaseStep, () => Promise<void>>>;

/**
 * One run: the steps of `database-protocol.ts` as they are taken on PostgreSQL. A method bears
 * the name of its step, which `runDatabases` calls.
 */
export class DatabaseRun implements Steps {
  readonly pause = new RunPause();
  target: TenantDatabase | undefined;
  current: TenantDatabase | undefined;
  /** The database that was current until the exchange of this run. */
  #former: TenantDatabase | undefined;
  readonly #installation: Installation;
  readonly #control: pg.Client;
  readonly #tenant: LockedTenant;
  readonly #plan: RunPlan;
  readonly #run: { readonly epoch: number; readonly guid: string };
  readonly #connections = new HeldConnections();
  #copy: LiveCopy | undefined;
  #schema: CompleteSchema | undefined;
  #releaseRoom: (() => Promise<void>) | undefined;

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
    this.#run = { epoch, guid: tenant.guid };
    this.current = current;
    this.target = plan.target;
  }

  async close(): Promise<void> {
    this.pause.stopTimer();
    await this.#releaseRoom?.().catch(() => {}); // the lock ends with its connection
    await this.#connections.close();
  }

  // The steps. `DatabaseStep` describes each of them.

  /**
   * Condemns the databases of earlier runs, and drops those whose servers are there, so that
   * runs that fail again and again do not fill a server.
   */
  async 'condemn leftovers'(): Promise<void> {
    await condemnLeftovers(this.#control, this.#tenant.id);
    await dropCondemned(this.#installation, this.#control, this.#tenant).catch(() => {});
    this.current = await readCurrent(this.#control, this.#tenant.id);
  }

  async 'drop leftovers'(): Promise<void> {
    await dropCondemned(this.#installation, this.#control, this.#tenant);
  }

  async reserve(): Promise<void> {
    const { server, origin, copy } = required(this.#plan.placement);
    if (copy) await this.#reserveRoom(server, copy);

    const reservation = { server, origin, epoch: this.#run.epoch };
    this.target = await reserveDatabase(
      this.#control,
      this.#installation.secrets,
      this.#tenant,
      reservation,
    );
  }

  async create(): Promise<void> {
    const target = this.#chosen();
    const { guid } = this.#tenant;
    const { version } = required(this.#plan.placement);
    await requireReserved(this.#control, target.id, this.#run.epoch);

    await createDatabase(this.#installation, target, guid, version).catch(async error => {
      if (error instanceof NameTakenError) await forgetReserved(this.#control, target.id);
      throw error;
    });
    await stampNew(await this.#connect(target), guid);

    this.#schema = await readHeadSchema(this.#installation, target.server);
  }

  async fill(): Promise<void> {
    const target = this.#chosen();
    const { fill } = required(this.#plan.placement);
    await requireReserved(this.#control, target.id, this.#run.epoch);

    if (fill) await fill(target);
    else await recordFacts(this.#control, target.id, await this.#copyCurrent());

    const feed = fill ? undefined : await this.#presentFeed();
    await beginFeedEra(await this.#connect(target), this.#run, { data: feed });
  }

  async complete(): Promise<void> {
    if (this.#schema && (await recordSchema(this.#control, this.#chosen().id, this.#schema))) {
      return;
    }
    throw new OperatorError(
      `another run has condemned the database of ${this.#tenant.slug} that this one has filled`,
    );
  }

  async 'claim current'(): Promise<void> {
    await this.#unlessLost(() => this.#claim(this.#present()));
  }

  async 'claim target'(): Promise<void> {
    await this.#claim(this.#chosen());
  }

  async 'upgrade target'(): Promise<void> {
    const target = this.#chosen();
    const client = await this.#connect(target);
    // an earlier control database may not know that it is open
    await closeDatabase(client, this.#run, target.role);
    await endSessionsOf(client, target.role);

    const { epoch } = this.#run;
    await upgradeDatabase(this.#installation, this.#control, client, { target, epoch });
    // A current database that is away, or lost, has an era below the time and the epoch, unless
    // the clock of its server is ahead.
    const current = await this.#presentFeed().catch(() => undefined);
    await beginFeedEra(client, this.#run, { current });
  }

  async 'announce fence'(): Promise<void> {
    await announceFence(this.#control, this.#tenant.guid);
  }

  async 'copy ahead'(): Promise<void> {
    await required(this.#copy).copyAhead();
  }

  async 'close fence'(): Promise<void> {
    await this.#unlessLost(() => this.#inCurrent(holdImports));
    this.pause.begin(this.#plan.maxPauseMs, () => this.#connections.breakOff());
    await closeFence(this.#control, this.#tenant.guid);
  }

  async 'wait for processes'(): Promise<void> {
    await drainProcesses(this.#control, this.#tenant.guid);
  }

  async 'close current'(): Promise<void> {
    await this.#inCurrent((client, role) => closeDatabase(client, this.#run, role));
  }

  async 'require lost'(): Promise<void> {
    await closeLost(this.#installation, this.#present(), () => this.#requireLastRun());
  }

  async 'end sessions'(): Promise<void> {
    await this.#inCurrent(async (client, role) => {
      await endSessionsOf(client, role);
      if (this.#plan.endSessions) await endOtherSessions(client, this.#present().database);
    });
  }

  async 'keep webhooks'(): Promise<void> {
    const source = await this.#connect(this.#present());
    const target = await this.#connect(this.#chosen());
    await keepWebhooks({ source, target, run: this.#run });
  }

  async 'copy changes'(): Promise<void> {
    await required(this.#copy).copyChanges();
  }

  async 'carry numbers'(): Promise<void> {
    const target = this.#plan.former ? this.#present() : this.#chosen();
    const given = await this.#readGiven();
    const known = given ?? (await readKnownNumbers(this.#control, this.#tenant));

    const client = await this.#connect(target);
    const { numbers } = await changeInEpoch(client, this.#run, () =>
      goOnAfter(client, known, given ? {} : skippedNumbers),
    );
    await recordNumbers(this.#control, target.id, numbers);
  }

  async exchange(): Promise<void> {
    const { keptBy = 'move', keepSeconds = 0, target } = this.#plan;
    if (target) await nameSuccessor(await this.#connect(target), this.#run, null);

    const former = this.current && { id: this.current.id, keptBy, keepSeconds };
    await exchangeDatabases(this.#control, this.#tenant, former, {
      id: this.#chosen().id,
      schema: this.#schema,
    });
    this.#former = keptBy === 'lost' ? undefined : this.current;
    this.current = this.#chosen();
  }

  async 'open current'(): Promise<void> {
    await this.#unlessLost(() =>
      this.#inCurrent((client, role) =>
        openDatabase(
          client,
          this.#run,
          role,
          () => this.#requireLastRun(),
          this.#plan.former !== undefined,
        ),
      ),
    );
  }

  /**
   * Records the new database in the former one as its successor. Does not wait for a former
   * database that is away: the tenant has its new one already.
   */
  async 'name successor'(): Promise<void> {
    const former = this.#former;
    if (!former) return;

    const { server, database } = this.#present();
    const nameIt = async (): Promise<void> => {
      const client = await this.#connect(former);
      await this.#copy?.release();
      await nameSuccessor(client, this.#run, `${server.name}/${database}`);
    };
    await nameIt().catch(() => {});
  }

  async serve(): Promise<void> {
    await serveTenant(this.#control, this.#tenant);
    const pauseMs = this.pause.end();
    if (pauseMs && this.target) await recordFacts(this.#control, this.target.id, { pauseMs });
  }

  async condemn(): Promise<void> {
    await condemnDatabase(this.#control, this.#tenant, this.#chosen());
  }

  /** Drops the target. A purge has named the objects of others in it before, and goes on. */
  async drop(): Promise<void> {
    const options = { mayBeOpen: true, leaveSchemas: true };
    await dropDatabase(this.#installation, this.#chosen(), this.#tenant.guid, options);
  }

  async forget(): Promise<void> {
    await forgetDatabase(this.#control, this.#chosen().id);
  }

  // Parts that several steps have in common.

  async #reserveRoom(server: Server, { bytes, warn }: PlacedCopy): Promise<void> {
    const adminUrl = this.#installation.servers.adminUrl(server);
    const copy = { server, adminUrl, of: this.#tenant.slug, bytes };
    this.#releaseRoom = await reserveRoom(this.#control, copy, warn);
  }

  async #copyCurrent() {
    const current = this.#present();
    const source = await this.#connect(current);
    const target = await this.#connect(this.#chosen());
    await becomeMember(source, current.role);

    const { maxPauseMs = 0, endSessions = false } = this.#plan;
    this.#copy = new LiveCopy({
      source,
      target,
      run: this.#run,
      role: current.role,
      maxPauseMs,
      endSessions,
    });
    return this.#copy.copyAll();
  }

  /**
   * Returns the numbers that the tenant has got until now; undefined if the database with the
   * last ones cannot be read, because it is lost, or, in the words of an operator, gone for ever.
   */
  async #readGiven(): Promise<GivenNumbers | undefined> {
    const { former, keptBy } = this.#plan;
    if (keptBy === 'lost') return undefined;
    if (!former) return readGivenNumbers(await this.#connect(this.#present()));
    if (!former.replacedBy) return undefined;

    const { server, database } = former.replacedBy;
    const url = this.#installation.servers.adminUrl(server, database);
    return withConnection(url, readGivenNumbers).catch(() => undefined);
  }

  async #presentFeed(): Promise<Feed> {
    return readFeed(await this.#connect(this.#present()));
  }

  async #claim(database: TenantDatabase): Promise<void> {
    const client = await this.#connect(database);
    await becomeMember(client, database.role);
    await this.#endOtherSessions(client, database);
    await claimDatabase(client, this.#run);
  }

  /**
   * @throws {OperatorError} when the command was told to end sessions of others, and may not
   *   end one
   */
  async #endOtherSessions(client: pg.Client, { database, role }: TenantDatabase): Promise<void> {
    if (!this.#plan.endSessions) return;

    const left = await endOtherSessions(client, database, [role]);
    if (left.length > 0) throw sessionsLeft(client, `Database ${database} is not free`, left);
  }

  async #unlessLost(work: () => Promise<void>): Promise<void> {
    if (this.current) await unlessLost(this.#installation, this.current, work);
  }

  async #inCurrent(work: (client: pg.Client, role: string) => Promise<unknown>): Promise<void> {
    const current = this.#present();
    await work(await this.#connect(current), current.role);
  }

  #requireLastRun(): Promise<void> {
    return requireLastRun(this.#control, this.#present().id, this.#run.epoch);
  }

  #connect({ server, database }: TenantDatabase): Promise<pg.Client> {
    return this.#connections.to(this.#installation.servers.adminUrl(server, database));
  }

  #present(): TenantDatabase {
    return required(this.current);
  }

  #chosen(): TenantDatabase {
    return required(this.target);
  }
}

/**
 * @throws when the run has no such value for its goal: a fault of the protocol or of the caller
 */
function required<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('a step needs what the run does not have');
  return value;
}
