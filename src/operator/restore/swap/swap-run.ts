import type pg from 'pg';
import type { Tenant } from '../../../control/fleet-entities.ts';
import { databaseUrl } from '../../../control/server-urls.ts';
import type { Installation } from '../../../installation.ts';
import { announceFence, closeFence, drainProcesses, liftFence } from '../../move/fence.ts';
import { HeldConnections } from '../../move/held-connections.ts';
import { newEpoch } from '../../move/move-store.ts';
import { readClaim } from '../../move/tenant-guard.ts';
import { endSessions } from '../../schema/tenant-sessions.ts';
import { findRestoredPair, type RestoredPair } from '../find-side.ts';
import type { RestoreEffects, RestoreView, SwapStep } from '../restore-protocol.ts';
import { announceData, exchangePointers } from './exchange-pointers.ts';
import { claimForSwap, giveDatabase } from './swap-databases.ts';

/** The steps of one run of a swap, on PostgreSQL. */
export class SwapRun {
  readonly control: pg.Client;
  readonly view: RestoreView;
  /** The tenants with the databases that they have. */
  pair: RestoredPair;
  /** How long requests waited, at most. */
  pauseMs = 0;
  /** False until a step has changed something, if the tenant had no fence before. */
  mayBeFenced: boolean;
  readonly effects: RestoreEffects<SwapStep>;
  readonly #installation: Installation;
  readonly #connections = new HeldConnections();
  #epoch = 0;
  #closedAt = 0;

  /** @param control holds the locks of both tenants */
  constructor(installation: Installation, control: pg.Client, pair: RestoredPair) {
    this.#installation = installation;
    this.control = control;
    this.pair = pair;
    this.view = { state: pair.isSwapped ? 'swapped' : 'aside', fence: pair.fence };
    this.mayBeFenced = pair.fence !== 'none';
    this.effects = {
      'claim databases': () => this.#claim(),
      'announce fence': () => announceFence(control, pair.tenant.guid, pair.side.server.id),
      'close fence': () => this.#closeFence(),
      'wait for processes': () => drainProcesses(control, pair.tenant.guid),
      'close database': () => this.#give(this.pair.tenant, this.pair.side, 'nologin'),
      'end sessions': () => this.#endSessions(this.pair.tenant),
      'hand over other database': () => this.#give(this.pair.side, this.pair.tenant, 'login'),
      'end other sessions': () => this.#endSessions(this.pair.side),
      'exchange databases': () => this.#exchange(),
      'open other database': () => this.#give(this.pair.side, this.pair.side, 'login'),
      'open database': () => this.#give(this.pair.tenant, this.pair.tenant, 'login'),
      'lift fence': () => this.#liftFence(),
    };
  }

  close(): Promise<void> {
    return this.#connections.close();
  }

  /** Connects before the fence is closed, so that requests do not wait for that. */
  async #claim(): Promise<void> {
    const { tenant, side } = this.pair;
    const claims: number[] = [];
    for (const each of [tenant, side]) claims.push(await readClaim(await this.#database(each)));
    this.#epoch = await newEpoch(this.control, [tenant.id, side.id], Math.max(...claims));
    for (const each of [tenant, side])
      await claimForSwap(await this.#database(each), this.#epoch, each, [tenant, side]);
    this.mayBeFenced = true;
  }

  async #closeFence(): Promise<void> {
    this.#closedAt = performance.now();
    await this.control.query(closeFence, [this.pair.tenant.guid]);
  }

  async #exchange(): Promise<void> {
    const { tenant, side } = this.pair;
    await exchangePointers(this.control, this.#installation.secrets, tenant, side);
    this.pauseMs = performance.now() - this.#closedAt;
    this.pair = await findRestoredPair(this.#installation, side.slug);
  }

  async #liftFence(): Promise<void> {
    const { guid } = this.pair.tenant;
    await announceData(this.control, guid);
    await this.control.query(liftFence, [guid]);
  }

  /** Gives the database of one of the two to `owner`. */
  async #give(of: Tenant, owner: Tenant, login: 'login' | 'nologin'): Promise<void> {
    const { tenant, side } = this.pair;
    await giveDatabase(await this.#database(of), this.#epoch, of.roleName, { owner, pair: [tenant, side], login });
  }

  async #endSessions(of: Tenant): Promise<void> {
    await endSessions(await this.#database(of), of.roleName);
  }

  #database({ server, databaseName }: Tenant): Promise<pg.Client> {
    return this.#connections.to(databaseUrl(this.#installation.servers.adminUrl(server), databaseName));
  }
}
