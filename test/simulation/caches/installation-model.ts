import { createSecretKey } from 'node:crypto';
import { signAccessToken, type TokenSettings } from '../../../src/auth/access-token.ts';
import type { TenantRecord } from '../../../src/control/records.ts';
import type { CacheWorld } from './cache-world.ts';
import { ControlModel } from './control-model.ts';
import { type TenantDatabase, TenantHistory, TenantServer } from './tenant-server.ts';
import { Timeline } from './timeline.ts';

/** The permission that requests with a token need. */
export const permission = 'pricing.read';
/** The bytes of every secret. */
export const secretBytes = Buffer.alloc(64, 'k');
export const resources = ['currencies', 'countries'];

/** A tenant, and whether it is active. */
export interface ModelTenant {
  readonly guid: string;
  readonly history: TenantHistory;
  readonly isActive: Timeline<boolean>;
  /** When an operator has announced that everything of the tenant may have changed. */
  refreshedAt: number;
  database: TenantDatabase;
}

/** The holder of a token: a user with a role and a session of its own. */
export interface ModelUser {
  readonly id: number;
  readonly tenant: ModelTenant;
  readonly sessionId: string;
  readonly token: string;
  readonly isEnabled: Timeline<boolean>;
  readonly hasPermission: Timeline<boolean>;
  readonly hasSession: Timeline<boolean>;
  /** The process that ended the session, and when it had done so. */
  logout: { by: string; at: number } | undefined;
}

/** The control database and the tenant servers of an installation, with two tenants on two servers. */
export class InstallationModel {
  readonly world: CacheWorld;
  readonly control: ControlModel;
  readonly controlUrl = 'postgresql://control.test:5432/control';
  readonly servers: readonly TenantServer[];
  readonly tenants: readonly ModelTenant[];
  readonly users: readonly ModelUser[];
  readonly tokens: TokenSettings = { issuer: 'simulation', audience: 'simulation', now: () => 1_000_000 };
  readonly #databases = new Map<string, TenantDatabase>();

  constructor(world: CacheWorld) {
    this.world = world;
    this.servers = ['control.test:5432', 'second.test:5432'].map(address => new TenantServer(world, address));
    this.control = new ControlModel(world, this.servers[0] as TenantServer);
    this.tenants = [1, 2].map(id => this.#createTenant(id));
    this.users = this.tenants.flatMap((tenant, index) => [1, 2].map(id => this.#createUser(tenant, 10 * index + id)));
  }

  /** The database that a tenant's URL leads to. */
  databaseOf(url: string): TenantDatabase {
    const { host, pathname } = new URL(url);
    return this.#databases.get(`${host}${pathname}`) as TenantDatabase;
  }

  setActive(tenant: ModelTenant, isActive: boolean): void {
    tenant.isActive.change(this.world.now, isActive);
    this.control.change('tenants', tenant.guid, { status: isActive ? 'active' : 'suspended' });
  }

  /**
   * Moves a tenant to another database, from which it is served once the control database says so. The earlier one is
   * closed before.
   * @param isRestored true when the database has other rows than the earlier one
   */
  move(tenant: ModelTenant, isRestored: boolean): void {
    const { world } = this;
    const earlier = tenant.database;
    earlier.isClosed = true;
    for (const session of earlier.sessions) session.end();
    const server = world.random.pick(this.servers.filter(each => each.isUp));
    if (!server) {
      earlier.isClosed = false;
      return;
    }
    tenant.database = this.#createDatabase(server, tenant.history);
    if (isRestored) for (const resource of resources) tenant.history.add(resource, { at: world.now, by: 'restore' });
    this.control.change('tenants', tenant.guid, locationOf(tenant.database));
  }

  #createTenant(id: number): ModelTenant {
    const guid = `00000000-0000-4000-8000-${String(id).padStart(12, '0')}`;
    const history = new TenantHistory(guid);
    const server = this.servers[this.world.random.integer(0, 1)] as TenantServer;
    const database = this.#createDatabase(server, history);
    this.control.change('tenants', guid, {
      id,
      guid,
      slug: `tenant-${id}`,
      features: [],
      status: 'active',
      roleName: 'tenant',
      rolePassword: Buffer.alloc(1),
      onControlServer: false,
      keys: [{ kid: `key-${id}`, secret: '', active: true }],
      ...locationOf(database),
    });
    return { guid, history, isActive: new Timeline(true), refreshedAt: Number.NEGATIVE_INFINITY, database };
  }

  #createUser(tenant: ModelTenant, id: number): ModelUser {
    const { users, roles, sessions } = { users: 'users', roles: 'roles', sessions: 'sessions' } as const;
    const sessionId = `00000000-0000-4000-9000-${String(id).padStart(12, '0')}`;
    const guid = `00000000-0000-4000-a000-${String(id).padStart(12, '0')}`;
    const tenantId = Number(tenant.guid.slice(-2));
    this.control.change(roles, String(id), { id, name: 'role', permissions: [permission] });
    this.control.change(users, String(id), {
      id,
      guid,
      tenantId,
      email: '',
      firstName: '',
      lastName: '',
      roleId: id,
      scope: 'All',
      entityId: null,
      disabled: false,
    });
    this.control.change(sessions, sessionId, { userId: id, revoked: false });
    const claims = { user_guid: guid, email: '', permissions: [permission], entity_type: null, sid: sessionId };
    const kid = `key-${tenantId}`;
    const signer = {
      id: tenantId,
      guid: tenant.guid,
      activeKid: kid,
      keys: new Map([[kid, createSecretKey(secretBytes)]]),
    };
    return {
      id,
      tenant,
      sessionId,
      token: signAccessToken(signer as unknown as TenantRecord, claims, this.tokens),
      isEnabled: new Timeline(true),
      hasPermission: new Timeline(true),
      hasSession: new Timeline(true),
      logout: undefined,
    };
  }

  #createDatabase(server: TenantServer, history: TenantHistory): TenantDatabase {
    const database = server.create(`tenant_${this.#databases.size}`, history);
    this.#databases.set(`${server.address}/${database.name}`, database);
    return database;
  }
}

function locationOf({ name, server }: TenantDatabase): Record<string, unknown> {
  return {
    databaseName: name,
    serverName: server.address,
    serverAddress: `postgresql://operator@${server.address}/postgres`,
  };
}
