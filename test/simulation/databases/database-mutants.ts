import type { Mutant } from '../mutant.ts';

const protocol = 'src/operator/databases/protocol/database-protocol.ts';
const world = 'test/simulation/databases/database-world.ts';
const run = 'test/simulation/databases/database-run.ts';
const steps = 'test/simulation/databases/database-steps.ts';

type Fault = readonly [name: string, text: string, replacement: string, seed: number];

const plantIn = (file: string, faults: readonly Fault[]): Mutant[] =>
  faults.map(([name, text, replacement, seed]) => ({ name, file, text, replacement, seed }));

/** Returns a fault of the protocol: the step that comes after `before` is missing. */
const without = (name: string, step: string, seed: number, before = ''): Fault => [
  name,
  `${before}yield '${step}';`,
  before,
  seed,
];

const inCase = (goal: string): string => `case '${goal}':\n      `;

const switchTargets = "yield 'claim current';\n      yield 'claim target';\n      ";

/** Faults that are planted in the protocol of databases, or in what it relies on. */
export const databaseMutants: readonly Mutant[] = [
  ...plantIn(run, [
    [
      'a run that has lost its lock changes the control database',
      'if (needsLock && !this.#isConnected)',
      'if (endsInControl.includes(step) && !this.#isConnected)',
      8,
    ],
  ]),
  ...plantIn(world, [
    [
      'a replaced run changes a database',
      'if (this.claimedBy > epoch)',
      'if (this.claimedBy > epoch + 1_000_000)',
      2,
    ],
    ['a run does not shut out earlier ones', 'this.claimedBy = epoch;', '', 2],
    [
      'a new database is created open',
      'this.exists = this.hasRole = true;',
      'this.exists = this.hasRole = this.isOpen = true;',
      1,
    ],
    [
      'a condemned database is put in place',
      "this.state === 'filled' ||",
      "this.state === 'filled' || this.state === 'condemned' ||",
      1,
    ],
    [
      'a new tenant keeps what an earlier run has exchanged',
      'if (this.isActive || this.current === nowhere) return;',
      'return;',
      82,
    ],
  ]),
  ...plantIn(protocol, [
    without('what has changed since the first copy is not copied', 'copy changes', 1),
    without('running requests are not waited for', 'wait for processes', 1),
    without('the processes do not learn of the fence', 'close fence', 1),
    without(
      'the processes do not prepare for the fence of a move',
      'announce fence',
      1,
      "yield 'claim current';\n      ",
    ),
    without(
      'the processes do not prepare for the fence of a switch',
      'announce fence',
      1,
      "yield 'upgrade target';\n      ",
    ),
    without(
      'the processes do not prepare for the fence of a replacement',
      'announce fence',
      1,
      "yield 'reserve';\n      ",
    ),
    [
      'a lost database is restored before the processes prepare',
      "yield 'reserve';\n      yield 'announce fence'; // early: the restore may take hours\n      yield* makeTarget();",
      "yield* place();\n      yield 'announce fence';",
      1,
    ],
    without('what has changed is not copied ahead', 'copy ahead', 1),
    [
      'a fence that a killed run has left stays',
      "if ((hasFence && !servesEarlier(goal)) || goal === 'retreat')",
      "if (goal === 'retreat')",
      1,
    ],
    [
      'only a tenant behind its fence is opened',
      "if ((hasFence && !servesEarlier(goal)) || goal === 'retreat')",
      'if (hasFence && !servesEarlier(goal))',
      196,
    ],
    without(
      'the database is not closed in a move',
      'close current',
      1,
      "yield 'copy ahead';\n      yield* closeFence();\n      ",
    ),
    without(
      'the database is not closed in a switch',
      'close current',
      1,
      "yield 'announce fence';\n      yield* closeFence();\n      ",
    ),
    [
      'the sessions are not ended in a move',
      "yield 'end sessions';\n      yield 'copy",
      "yield 'copy",
      2,
    ],
    [
      'the sessions are not ended in a switch',
      "yield 'end sessions';\n      yield 'keep",
      "yield 'keep",
      2,
    ],
    without('a switch brings other webhooks back', 'keep webhooks', 1),
    without('a switch gives numbers again', 'carry numbers', 1, "yield 'keep webhooks';\n      "),
    without('a move gives numbers again', 'carry numbers', 1, "yield 'copy changes';\n      "),
    without(
      'a replacement gives numbers again',
      'carry numbers',
      1,
      "yield* closeFence();\n      yield 'require lost';\n      ",
    ),
    [
      'the numbers are carried before the sessions are ended',
      "yield 'end sessions';\n      yield 'keep webhooks';\n      yield 'carry numbers';",
      "yield 'carry numbers';\n      yield 'end sessions';\n      yield 'keep webhooks';",
      96,
    ],
    [
      'the webhooks are copied before the sessions are ended',
      "yield 'end sessions';\n      yield 'keep webhooks';",
      "yield 'keep webhooks';\n      yield 'end sessions';",
      2,
    ],
    [
      'the changes are copied before the database is closed',
      "yield 'close current';\n      yield 'end sessions';\n      yield 'copy changes';",
      "yield 'copy changes';\n      yield 'close current';\n      yield 'end sessions';",
      4,
    ],
    without(
      'a switch does not claim the other database',
      'claim target',
      16,
      `${inCase('switch')}yield 'claim current';\n      `,
    ),
    without(
      'a retreating run does not claim the database',
      'claim current',
      106,
      '* retreat(): Generator<DatabaseStep, void, void> {\n  ',
    ),
    without('the tenant gets a database of another version', 'upgrade target', 1, switchTargets),
    without(
      'what a new tenant has is not dropped before another one is placed',
      'drop leftovers',
      30,
    ),
    without(
      'a new tenant keeps what another run has reserved',
      'condemn leftovers',
      10,
      inCase('provision'),
    ),
    without(
      'another database is placed beside what a killed run has reserved',
      'condemn leftovers',
      6,
      inCase('place'),
    ),
    without('a move leaves what a killed run has reserved', 'condemn leftovers', 4, inCase('move')),
    without(
      'a replacement leaves what a killed run has reserved',
      'condemn leftovers',
      1,
      inCase('replace'),
    ),
    without('a failed run leaves what it has reserved', 'condemn leftovers', 1, inCase('give up')),
    without(
      'names are not recorded',
      'reserve',
      1,
      '* place(): Generator<DatabaseStep, void, void> {\n  ',
    ),
    without('no database is created', 'create', 1),
    without('the tenant gets a database that is not filled', 'fill', 1),
    without('it is not recorded that a database is complete', 'complete', 1),
    without(
      'a database is replaced that is not lost',
      'require lost',
      1,
      'yield* closeFence();\n      ',
    ),
    without('the tenant does not get the other database', 'exchange', 1),
    [
      'the database is opened before the exchange',
      "yield 'exchange';\n  yield 'open current';",
      "yield 'open current';\n  yield 'exchange';",
      1,
    ],
    without(
      'the database that the tenant has got is not opened',
      'open current',
      1,
      "yield 'exchange';\n  ",
    ),
    without(
      'a retreating run leaves the database closed',
      'open current',
      1,
      "yield 'claim current';\n  ",
    ),
    without(
      'a retreating run leaves the fence',
      'serve',
      1,
      "yield 'claim current';\n  yield 'open current';\n  ",
    ),
    without(
      'the fence stays after the exchange',
      'serve',
      1,
      "if (hasFormer) yield 'name successor';\n  ",
    ),
    [
      'the other database is opened before the one of the tenant is closed',
      "yield 'close current';\n      yield 'end sessions';\n      yield 'keep webhooks';\n      yield 'carry numbers';\n      yield* exchange(true);",
      "yield 'keep webhooks';\n      yield 'carry numbers';\n      yield* exchange(true);\n      yield 'close current';\n      yield 'end sessions';",
      1,
    ],
    without('an upgrade does not claim the database', 'claim target', 25, inCase('upgrade')),
    without(
      'an upgrade leaves the database at its version',
      'upgrade target',
      5,
      `${inCase('upgrade')}yield 'claim target';\n      `,
    ),
    without('a database is dropped that is not condemned', 'condemn', 1),
    without('a condemned database is forgotten, and not dropped', 'drop', 1),
    without('a dropped database is not forgotten', 'forget', 1),
  ]),
  ...plantIn(run, [
    [
      'a retreating run opens the database that it knew',
      'this.#run.current = control.current;\n    return databaseProtocol',
      'return databaseProtocol',
      64,
    ],
    [
      'a replaced run fills what it has created when another one had dropped it',
      "!beginsInControl.includes(step) || (this.#isConnected && target?.state === 'reserved');",
      'true;',
      4,
    ],
    [
      'a replaced run opens a lost database that is found',
      'inControl || endsInControl.includes(step)',
      'inControl',
      8587,
    ],
    [
      'a run opens the database that the tenant had before',
      "if (step === 'exchange')",
      'if (false)',
      1,
    ],
  ]),
  ...plantIn(steps, [
    [
      'a retreating run needs the servers of all databases',
      '({ current, epoch }) => current.isLost() || current.claim(epoch)',
      `({ world, current, epoch }) => {
    for (const each of world.control.databases) if (each.exists) each.reach();
    return current.isLost() || current.claim(epoch);
  }`,
      2,
    ],
    [
      'a run uses the names that a killed one has given',
      `({ world }) => world.control.condemnLeftovers(),
  reserve: run => {
    run.target = run.world.control.reserve(run.server, new Set([-run.epoch]));`,
      `() => {},
  reserve: run => {
    const left = run.world.control.databases.find(({ state }) => state === 'reserved');
    if (left) left.expected = new Set([-run.epoch]);
    run.target = left ?? run.world.control.reserve(run.server, new Set([-run.epoch]));`,
      1,
    ],
    [
      'a database is condemned that the tenant has got',
      "change(['filled', 'kept', 'condemned'], 'condemned')",
      "change(['filled', 'kept', 'condemned', 'current'], 'condemned')",
      1,
    ],
    [
      'a run drops what is not condemned',
      "if (database.state !== 'condemned' ||",
      "if (database.state === 'gone' ||",
      1,
    ],
    [
      'a run does not look whether a database is lost',
      'if (!current.isLost()) throw',
      'if (false) throw',
      2,
    ],
    ['a lost database that is found lets the tenant in', 'current.isOpen = false;', '', 15],
    [
      'a retreating run opens a database that was replaced',
      'if (current.replacedBy) throw',
      'if (false) throw',
      2,
    ],
  ]),
];
