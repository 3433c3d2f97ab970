import type pg from 'pg';
import { Server } from '../../control/fleet-entities.ts';
import { owners } from '../../control/secret-box.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { copyTemplate, limitConnect, makeRole } from '../provisioning/tenant-database.ts';
import { headFingerprint } from '../schema/template-fingerprint.ts';
import { awaitShortTransactions, becomeMember, endSessions } from '../schema/tenant-sessions.ts';
import type { CopiedTables } from './copied-tables.ts';
import { catchUp, copyAll, copyMissing } from './copy-tables.ts';
import { announceFence, drainProcesses, liftFence } from './fence.ts';
import { HeldConnections } from './held-connections.ts';
import { describe, findMissing } from './missing-data.ts';
import { recordFacts } from './move-facts.ts';
import type { MoveStep } from './move-protocol.ts';
import { enterState, type Move, type MoveSide } from './move-store.ts';
import { fenceMs } from './plan-move.ts';
import { claimDatabase, closeDatabase, openDatabase } from './tenant-guard.ts';

/**
 * Behind the fence, the connections of a run are broken off when it takes longer than its maximum pause and this time.
 * Locks and sessions are waited for at most that long, so a server is silent.
 */
const maxSpareMs = 10_000;

/** Takes the steps of one run of a move. */
export class MoveSteps {
  readonly #installation: Installation;
  readonly #control: pg.Client;
  readonly #move: Move;
  readonly #connections = new HeldConnections();
  #servers: Map<number, Server> | undefined;
  #copied: CopiedTables | undefined;
  #fingerprint: string | null = null;
  #overdue: NodeJS.Timeout | undefined;

  /** @param control holds the lock of the tenant */
  constructor(installation: Installation, control: pg.Client, move: Move) {
    this.#installation = installation;
    this.#control = control;
    this.#move = move;
  }

  async take(step: MoveStep): Promise<void> {
    const move = this.#move;
    switch (step.kind) {
      case 'enter':
        return this.#enter(step);
      case 'claim source':
        return claimDatabase(await this.#database(move.from), move);
      case 'claim target':
        return claimDatabase(await this.#database(move.to), move);
      case 'create target':
        return this.#createTarget();
      case 'announce fence':
        return announceFence(this.#control, move.guid, move.to.serverId);
      case 'lift fence':
        await this.#control.query(liftFence, [move.guid]);
        return;
      case 'copy':
        return this.#copy();
      case 'wait for processes':
        return drainProcesses(this.#control, move.guid);
      case 'close source':
        return closeDatabase(await this.#database(move.from), move, move.from.role);
      case 'end sessions':
        return endSessions(await this.#database(move.from), move.from.role);
      case 'copy changes':
        return this.#copyChanges();
      case 'open target':
        return openDatabase(await this.#database(move.to), move, move.to.role);
      case 'reopen source':
        return this.#reopenSource();
      case 'drop target':
        return this.#drop(move.to);
      case 'drop source':
        return this.#drop(move.from);
    }
  }

  close(): Promise<void> {
    clearTimeout(this.#overdue);
    return this.#connections.close();
  }

  async #enter(step: Extract<MoveStep, { kind: 'enter' }>): Promise<void> {
    if (step.to === 'fenced')
      this.#overdue = setTimeout(() => this.#connections.breakOff(), maxSpareMs + this.#move.maxPauseMs);
    await enterState(this.#control, this.#move, step, this.#fingerprint);
    if (step.to === 'switched') await recordFacts(this.#control, this.#move, { error: null });
  }

  async #createTarget(): Promise<void> {
    const { secrets } = this.#installation;
    const { to, guid, marker, toPassword } = this.#move;
    const server = await this.#server(to.serverId);
    const adminUrl = this.#installation.servers.adminUrl(server);
    const password = secrets.open(toPassword, owners.rolePassword(guid)).toString();
    await withConnection(adminUrl, async client => {
      await copyTemplate(client, server, adminUrl, to.database, () =>
        makeRole(client, { roleName: to.role, guid, server }, password),
      );
      await client.query(
        `${limitConnect(to.database, to.role)}; alter database ${quote(to.database)} allow_connections true`,
      );
    });
    const target = await this.#database(to);
    await target.query('insert into tenant_identity (guid) values ($1) on conflict do nothing', [marker]);
  }

  /** Copies everything once, which shows how long the tables that change will take behind the fence. */
  async #copy(): Promise<void> {
    const { from, to, maxPauseMs } = this.#move;
    const [source, target] = await Promise.all([this.#database(from), this.#database(to)]);
    await becomeMember(source, from.role);
    const server = await this.#server(to.serverId);
    this.#fingerprint = await headFingerprint(
      this.#installation.control,
      server,
      this.#installation.servers.adminUrl(server),
    );
    const sides = { source, target, run: this.#move };
    const startedAt = performance.now();
    const copied = await copyAll(sides);
    await this.#recordCopy(source, copied, performance.now() - startedAt);
    await awaitShortTransactions(source, from.role);
    this.#copied = await catchUp(sides, copied);
    const missing = await findMissing(source, this.#copied, from.role);
    const pauseMs = fenceMs + missing.estimatedMs;
    if (pauseMs > maxPauseMs)
      throw new OperatorError(
        `Requests of the tenant would wait for about ${(pauseMs / 1_000).toFixed(1)} s, because ${describe(missing)}; ` +
          `at most ${maxPauseMs / 1_000} s are allowed. Move it at a quieter time, or accept a longer wait: ` +
          `--pause ${Math.ceil((1.5 * pauseMs) / 1_000)}`,
      );
  }

  async #recordCopy(source: pg.Client, { checksums, prefixes }: CopiedTables, copyMs: number): Promise<void> {
    const { rows: size } = await source.query<{ bytes: string }>(
      'select pg_database_size(current_database()) as bytes',
    );
    const tables = [...checksums.values(), ...[...prefixes.values()].map(({ checksum }) => checksum)];
    const rows = tables.reduce((sum, table) => sum + table.rows, 0);
    await recordFacts(this.#control, this.#move, { bytes: Number(size[0]?.bytes), rows, copyMs });
  }

  async #copyChanges(): Promise<void> {
    const { from, to, maxPauseMs } = this.#move;
    if (!this.#copied) throw new Error('nothing has been copied');
    const [source, target] = [await this.#database(from), await this.#database(to)];
    const checksums = await copyMissing({ source, target, run: this.#move }, this.#copied, {
      role: from.role,
      maxMs: maxPauseMs,
    });
    await recordFacts(this.#control, this.#move, { checksums: Object.fromEntries(checksums) });
  }

  async #reopenSource(): Promise<void> {
    const { from } = this.#move;
    const source = await this.#database(from);
    await source.query('rollback'); // of the transaction that copied from it
    await openDatabase(source, this.#move, from.role);
  }

  async #drop({ serverId, database, role }: MoveSide): Promise<void> {
    const adminUrl = this.#installation.servers.adminUrl(await this.#server(serverId));
    await withConnection(adminUrl, async admin => {
      const { rowCount } = await admin.query('select from pg_roles where rolname = $1', [role]);
      if (rowCount) await becomeMember(admin, role);
      await admin.query(`drop database if exists ${quote(database)} with (force)`);
      await admin.query(`drop role if exists ${quote(role)}`);
    });
  }

  async #database({ serverId, database }: MoveSide): Promise<pg.Client> {
    const adminUrl = this.#installation.servers.adminUrl(await this.#server(serverId));
    return this.#connections.to(databaseUrl(adminUrl, database));
  }

  async #server(id: number): Promise<Server> {
    this.#servers ??= new Map(
      (await this.#installation.control.em.fork().findAll(Server)).map(server => [server.id, server]),
    );
    const server = this.#servers.get(id);
    if (!server) throw new OperatorError(`there is no server with id ${id}`);
    return server;
  }
}
