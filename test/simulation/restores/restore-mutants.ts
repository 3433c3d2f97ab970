import type { Mutant } from '../mutants.ts';

const protocol = 'src/operator/restore/restore-protocol.ts';
const world = 'test/simulation/restores/restore-world.ts';

const without = (name: string, step: string, seed: number): Mutant => ({
  name,
  file: protocol,
  text: `    yield '${step}';\n`,
  replacement: '',
  seed,
});

/** Faults that are planted in the protocol of restores, or in what it relies on. */
export const restoreMutants: readonly Mutant[] = [
  without('the sessions in the former database are not ended', 'end sessions', 1),
  without('the former database is not closed', 'close database', 1),
  without('running requests are not waited for', 'wait for processes', 1),
  without('the processes do not learn of the fence', 'close fence', 1),
  without('the other database is not opened for the tenant', 'hand over other database', 1),
  without('the sessions of the side go on in the database that the tenant gets', 'end other sessions', 9),
  {
    name: 'the sessions of the side are ended before new ones are refused',
    file: protocol,
    text: `    yield 'hand over other database';
    yield 'end other sessions';`,
    replacement: `    yield 'end other sessions';
    yield 'hand over other database';`,
    seed: 54,
  },
  {
    name: 'the other database is opened for the tenant before the former one is closed',
    file: protocol,
    text: `    yield 'close database';
    yield 'end sessions';
    yield 'hand over other database';`,
    replacement: `    yield 'hand over other database';
    yield 'close database';
    yield 'end sessions';`,
    seed: 1,
  },
  {
    name: 'a retreating run opens the database of the tenant before it closes the other one',
    file: protocol,
    text: `  yield 'open other database';
  yield 'open database';`,
    replacement: `  yield 'open database';
  yield 'open other database';`,
    seed: 24,
  },
  {
    name: 'a retreating run leaves the database of the tenant closed',
    file: protocol,
    text: "  yield 'open database';\n",
    replacement: '',
    seed: 17,
  },
  {
    name: 'a fence that a killed run has closed stays',
    file: protocol,
    text: "  yield 'lift fence';\n",
    replacement: '',
    seed: 1,
  },
  {
    name: 'a run does not shut earlier ones out of the databases',
    file: protocol,
    text: "  yield 'claim databases';\n",
    replacement: '',
    seed: 8,
  },
  {
    name: 'a replaced run changes a database',
    file: world,
    text: 'if (this.claimedBy > epoch)',
    replacement: 'if (this.claimedBy > epoch + 1_000_000)',
    seed: 53,
  },
  {
    name: 'the side is removed during a swap that a killed run has begun',
    file: protocol,
    text: "    if (isComplete && fence !== 'none') return state;\n",
    replacement: '',
    seed: 11,
  },
  {
    name: 'a database is dropped that a paused purge has not condemned',
    file: protocol,
    text: "['condemn database', 'drop database', 'forget tenant']",
    replacement: "['drop database', 'forget tenant']",
    seed: 30,
  },
  {
    name: 'a paused purge condemns a database that a swap has claimed',
    file: world,
    text: `    this.guard(epoch);
    if (this.stamp === 'tenant')`,
    replacement: "    if (this.stamp === 'tenant')",
    seed: 53,
  },
  {
    name: 'a condemned database is put in place',
    file: world,
    text: "if (this.stamp === 'nobody')",
    replacement: 'if (false)',
    seed: 307,
  },
  {
    name: 'a side that a killed run has begun is completed by another run',
    file: protocol,
    text: `    if (state === 'begun') yield* removalSteps;
    yield* sideSteps;`,
    replacement: `    if (state === 'none') yield 'reserve side';
    yield* sideSteps.slice(1);`,
    seed: 253,
  },
  {
    name: 'a run that has lost its locks exchanges the databases',
    file: 'test/simulation/operator-run.ts',
    text: 'if (!this.#isConnected)',
    replacement: 'if (false)',
    seed: 48,
  },
];
