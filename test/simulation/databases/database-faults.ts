import type { DatabaseRun } from './database-run.ts';
import type { DatabaseServer, DatabaseWorld } from './database-world.ts';
import { ServingProcess } from './serving-process.ts';

/** A simulated world with what can go wrong in it. */
export interface FaultyWorld extends DatabaseWorld {
  isCalm: boolean;
  readonly processes: ServingProcess[];
  readonly runs: DatabaseRun[];
  readonly servers: readonly DatabaseServer[];
}

export function startProcess(world: FaultyWorld): void {
  world.processes.push(new ServingProcess(world, `p${world.processes.length}`));
}

/** Lets one thing go wrong, or, at times, nothing. */
export function causeFault(world: FaultyWorld): void {
  const { control, random, scheduler, trace } = world;
  const run = random.pick(world.runs.filter(({ state }) => state !== 'ended'));
  const process = random.pick(world.processes.filter(({ isDead }) => !isDead));
  const server = random.pick(world.servers);
  const kind = random.integer(0, 10);

  if (kind === 0 && run) {
    trace(() => 'kill a run');
    run.kill();
  } else if (kind <= 2 && run?.state === 'running') {
    run.stop();
  } else if (kind === 3 && run) {
    trace(() => 'a run loses its lock');
    run.disconnect();
  } else if (kind === 4 && process && world.processes.length < 6) {
    trace(() => `kill ${process.name}`);
    process.kill();
    startProcess(world);
  } else if (kind === 5 && process) {
    trace(() => `stop ${process.name}`);
    process.stop();
    scheduler.after(random.between(50, 3_000), () => process.continue());
  } else if (kind === 6 && !control.isAway) {
    trace(() => 'the control database goes away');
    control.isAway = true;
    for (const each of world.runs) each.disconnect();
    scheduler.after(random.between(50, 1_500), () => bringControlBack(world));
  } else if ((kind === 7 || kind === 8) && server && !server.isAway) {
    trace(() => `${server.name} goes away`);
    takeAway(world, server);
    scheduler.after(random.between(50, 2_500), () => {
      if (world.isCalm) return; // then it is back when it is needed
      trace(() => `${server.name} is back`);
      server.isAway = false;
    });
  } else if (kind === 9) {
    loseCurrent(world);
  } else if (kind === 10 && !control.isAway) {
    const former = control.current;
    if (control.loseExchange(random.chance(0.5) ? 'closed' : 'none')) {
      trace(() => `the control database has lost that the tenant has ${former.name}`);
      for (const each of world.runs) each.disconnect();
    }
  }

  world.check();
}

export function bringControlBack({ control, trace }: FaultyWorld): void {
  if (!control.isAway) return;
  trace(() => 'the control database is back');
  control.isAway = false;
  control.onChange();
}

export function takeAway({ control }: FaultyWorld, server: DatabaseServer): void {
  server.isAway = true;
  for (const database of control.databases) if (database.server === server) database.endSessions();
}

/** The server of the tenant loses its database. At times it is there again later, as it was. */
export function loseCurrent(world: FaultyWorld): void {
  const { control, random, scheduler, trace } = world;
  const { current } = control;
  if (!current.exists || current.server.isAway) return;
  trace(() => `${current.name} is lost`);
  current.lose();
  if (random.chance(0.5)) return;
  scheduler.after(random.between(100, 4_000), () => {
    if (world.isCalm || !current.hasRole || current.server.isAway) return;
    trace(() => `${current.name} is found`);
    current.exists = true;
    world.check();
  });
}
