import { revokeSession } from '../../../src/auth/sessions.ts';
import { changeTopics } from '../../../src/control/change-topics.ts';
import type { CacheSimulation } from './cache-simulation.ts';
import type { CachedService } from './cached-service.ts';
import { connectControl } from './control-connections.ts';
import { type ModelTenant, type ModelUser, permission, resources } from './installation-model.ts';

/** Faults and changes at random times, until `end`. */
export class CacheFaults {
  readonly #simulation: CacheSimulation;
  readonly #endsAt: number;
  readonly #pauseMs: number;
  readonly #changes: readonly (() => void)[];
  readonly #tenantFaults: readonly ((service: CachedService) => void)[] = [
    service => this.#cutTenantConnection(service),
    service => this.#cutTenantConnection(service),
    () => this.#crashTenantServer(),
  ];
  readonly #controlFaults: readonly ((service: CachedService) => void)[] = [
    service => this.#kill(service),
    service => this.#stop(service),
    service => this.#stop(service),
    service => this.#block(service),
    service => this.#block(service),
    service => this.#cutFeed(service),
    service => this.#cutFeed(service),
    service => this.#detachFeed(service),
    () => this.#shutControlDown(),
  ];

  constructor(simulation: CacheSimulation, ms: number) {
    this.#simulation = simulation;
    this.#endsAt = simulation.world.now + ms;
    this.#pauseMs = simulation.isSlow ? 40_000 : 700;
    this.#changes = simulation.subject === 'responses' ? this.#tenantChanges() : this.#holderChanges();
    this.#schedule();
  }

  /** Ends what still goes on. */
  end(): void {
    const { world, installation, live } = this.#simulation;
    world.trace(() => 'calm');
    world.isCalm = true;
    installation.control.isUp = true;
    for (const server of installation.servers) server.isUp = true;
    for (const tenant of installation.tenants) if (!tenant.isActive.current) installation.setActive(tenant, true);
    for (const feed of installation.control.feeds) if (feed.detachedAt !== undefined) feed.end();
    for (const { process } of live) process.continue();
  }

  #schedule(): void {
    const { world, live, isSlow } = this.#simulation;
    const { random } = world;
    world.scheduler.after(random.between(0.1, 1) * this.#pauseMs, () => {
      if (world.isCalm) return;
      const service = random.pick(live.filter(({ process }) => process.isRunning));
      const faults = random.chance(isSlow ? 0.9 : 0.25) ? this.#tenantFaults : this.#controlFaults;
      if (random.chance(0.6)) random.pick(this.#changes)?.();
      else if (service) random.pick(faults)?.(service);
      if (live.length === 0 || (!isSlow && (live.length < 2 || random.chance(0.1)))) this.#simulation.start();
      this.#schedule();
    });
  }

  #tenantChanges(): (() => void)[] {
    const { world, installation, isSlow } = this.#simulation;
    const { random } = world;
    const tenant = (): ModelTenant => random.pick(installation.tenants) as ModelTenant;
    const changeOutside = (): void => {
      const { database } = tenant();
      if (database.isReachable) database.changeOutside((isSlow ? resources[0] : random.pick(resources)) as string);
    };
    // In a slow run, little else makes a process read again what somebody has changed outside.
    if (isSlow) return [changeOutside];
    return [
      changeOutside,
      changeOutside,
      changeOutside,
      () => this.#refresh(tenant()),
      () => installation.move(tenant(), false),
      () => installation.move(tenant(), true),
      () => installation.setActive(tenant(), random.chance(0.7)),
      () => installation.control.change('tenants', tenant().guid, { name: 'renamed' }),
    ];
  }

  #holderChanges(): (() => void)[] {
    const { world, installation } = this.#simulation;
    const { random } = world;
    const anyUser = (): ModelUser => random.pick(installation.users) as ModelUser;
    const { control } = installation;
    const setSession = (user: ModelUser, has: boolean): void => {
      user.hasSession.change(world.now, has);
      if (has) user.logout = undefined;
      control.change('sessions', user.sessionId, { revoked: !has });
    };
    const setEnabled = ({ id, isEnabled }: ModelUser, is: boolean): void => {
      isEnabled.change(world.now, is);
      control.change('users', String(id), { disabled: !is });
    };
    const setPermission = ({ id, hasPermission }: ModelUser, has: boolean): void => {
      hasPermission.change(world.now, has);
      control.change('roles', String(id), { permissions: has ? [permission] : [] });
    };
    const either = (): boolean => random.chance(0.6);
    return [
      () => setSession(anyUser(), either()),
      () => setSession(anyUser(), either()),
      () => setEnabled(anyUser(), either()),
      () => setPermission(anyUser(), either()),
      () => this.#logOut(anyUser()),
      () => installation.setActive(random.pick(installation.tenants) as ModelTenant, random.chance(0.8)),
    ];
  }

  /** Ends a session through a process, which must know it at once. */
  #logOut(user: ModelUser): void {
    const { world, live, installation } = this.#simulation;
    const service = world.random.pick(live.filter(({ process }) => process.isRunning));
    if (!service) return;
    world.trace(() => `${service.process.name} ends session ${user.sessionId}`);
    service.process.deliver(() => {
      const database = connectControl(world, installation.control, service.process, () =>
        user.hasSession.change(world.now, false),
      );
      revokeSession(database, user.sessionId, 'logout').then(
        () => {
          service.directory.invalidateSession(user.sessionId);
          if (user.hasSession.current) return;
          user.logout = { by: service.process.name, at: world.now };
          this.#simulation.read(service, user);
        },
        (error: Error) => {
          if (!('code' in error) && !service.process.isDead)
            world.fail(`a session could not be ended: ${error.message}`);
        },
      );
    });
  }

  #refresh(tenant: ModelTenant): void {
    const { world, installation } = this.#simulation;
    world.trace(() => `refresh ${tenant.guid}`);
    if (!installation.control.isUp) return;
    tenant.refreshedAt = world.now;
    installation.control.notify([`${changeTopics.responses}:${tenant.guid}`]);
  }

  #kill({ process }: CachedService): void {
    const { world, installation } = this.#simulation;
    world.trace(() => `kill ${process.name}`);
    process.kill();
    for (const feed of installation.control.feeds) if (feed.process === process) feed.end();
    for (const { databases } of installation.servers)
      for (const { sessions } of databases)
        for (const session of sessions)
          if (session.by === process.name) world.scheduler.after(world.random.between(0, 2_000), () => session.end());
    world.scheduler.after(world.random.between(100, 2_000), () => this.#simulation.start());
  }

  #stop({ process }: CachedService): void {
    this.#trace(`stop ${process.name}`);
    process.stop();
    this.#later(this.#duration(), () => process.continue());
  }

  /** Holds back all messages between a process and the control database. */
  #block({ process, feedClient }: CachedService): void {
    const { world } = this.#simulation;
    this.#trace(`block ${process.name}`);
    const until = Math.min(world.now + this.#duration(), this.#endsAt);
    process.controlBlockedUntil = until;
    feedClient?.session?.block(until);
  }

  #cutFeed({ process, feedClient }: CachedService): void {
    this.#trace(`cut the feed of ${process.name}`);
    feedClient?.session?.end();
  }

  /** Leaves the feed on an earlier primary: it responds, and receives no notification. */
  #detachFeed({ process, feedClient }: CachedService): void {
    const session = feedClient?.session;
    if (!session || session.detachedAt !== undefined) return;
    this.#trace(`detach the feed of ${process.name}`);
    session.detachedAt = this.#simulation.world.now;
  }

  /** Breaks a connection to a tenant database, on both sides at different times. */
  #cutTenantConnection({ process, connections }: CachedService): void {
    const { random } = this.#simulation.world;
    this.#trace(`cut connections of ${process.name}`);
    for (const { clients } of connections)
      for (const client of clients)
        if (random.chance(0.7)) client.cut(random.chance(0.5) ? 0 : random.between(0, 3_000));
  }

  #shutControlDown(): void {
    const { control } = this.#simulation.installation;
    if (!control.isUp) return;
    this.#trace('control database down');
    control.shutDown();
    this.#later(this.#duration() / 2, () => {
      control.isUp = true;
    });
  }

  #crashTenantServer(): void {
    const { world, installation } = this.#simulation;
    const server = world.random.pick(installation.servers);
    if (!server?.isUp) return;
    this.#trace(`crash ${server.address}`);
    server.crash();
    this.#later(world.random.between(50, 1_000), () => {
      server.isUp = true;
    });
  }

  #duration(): number {
    const { random } = this.#simulation.world;
    return random.chance(0.5) ? random.between(50, 1_200) : random.between(1_000, 6_000);
  }

  /** Ends a fault after some time, or when the calm begins. */
  #later(ms: number, end: () => void): void {
    const { scheduler } = this.#simulation.world;
    scheduler.after(Math.min(ms, this.#endsAt - scheduler.now), end);
  }

  #trace(text: string): void {
    this.#simulation.world.trace(() => text);
  }
}
