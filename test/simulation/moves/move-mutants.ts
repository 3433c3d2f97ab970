import type { Mutant } from '../mutants.ts';

const protocol = 'src/operator/move/move-protocol.ts';

/** Faults that are planted in the protocol of moves, or in the databases that it relies on. */
export const moveMutants: readonly Mutant[] = [
  {
    name: 'the sessions in the old database are not ended',
    file: protocol,
    text: "yield { kind: 'end sessions' };",
    replacement: '',
    seed: 8,
  },
  {
    name: 'the changes are copied before the old database is closed',
    file: protocol,
    text: `        yield { kind: 'close source' };
        yield { kind: 'end sessions' };
        yield { kind: 'copy changes' };`,
    replacement: `        yield { kind: 'copy changes' };
        yield { kind: 'close source' };
        yield { kind: 'end sessions' };`,
    seed: 8,
  },
  {
    name: 'what has changed since the first copy is not copied',
    file: protocol,
    text: "yield { kind: 'copy changes' };",
    replacement: '',
    seed: 1,
  },
  {
    name: 'the old database is not closed',
    file: protocol,
    text: "yield { kind: 'close source' };",
    replacement: '',
    seed: 1,
  },
  {
    name: 'running requests are not waited for',
    file: protocol,
    text: "yield { kind: 'wait for processes' };",
    replacement: '',
    seed: 1,
  },
  {
    name: 'the processes do not learn of the fence',
    file: protocol,
    text: "yield enter('fenced', 'close');",
    replacement: "yield enter('fenced');",
    seed: 1,
  },
  {
    name: 'a retreating run needs the server of the new database',
    file: protocol,
    text: "yield { kind: 'reopen source' };",
    replacement: "yield { kind: 'claim target' }; yield { kind: 'reopen source' };",
    seed: 2,
  },
  {
    name: 'the new database is opened before the tenant has it',
    file: protocol,
    text: "yield enter('verified');",
    replacement: "yield { kind: 'open target' }; yield enter('verified');",
    seed: 233,
  },
  {
    name: 'a run does not shut earlier ones out of the new database',
    file: protocol,
    text: `yield { kind: 'claim target' };
        if (at === 'prepared')`,
    replacement: "if (at === 'prepared')",
    seed: 388,
  },
  {
    name: 'a retreating run leaves the old database closed',
    file: protocol,
    text: "yield { kind: 'reopen source' };",
    replacement: '',
    seed: 12,
  },
  {
    name: 'a run goes back to the old database when the tenant has the new one',
    file: protocol,
    text: "if (!closedByThisRun) yield { kind: 'claim target' };",
    replacement: `if (!closedByThisRun) {
          yield { kind: 'claim source' };
          yield enter('copying');
          break;
        }`,
    seed: 174,
  },
  {
    name: 'a new run goes on where a killed one has copied',
    file: protocol,
    text: `      case 'copying':
        if (fenced) {
          yield* reopen();
          fenced = false;
        }`,
    replacement: `      case 'copying':
        if (fenced && at === 'copying' && goal === 'switch') {
          yield { kind: 'open target' };
          yield enter('switched', 'lift');
          break;
        }
        if (fenced) {
          yield* reopen();
          fenced = false;
        }`,
    seed: 1,
  },
  {
    name: 'a run does not shut earlier ones out of the old database',
    file: protocol,
    text: "yield { kind: 'claim source' };",
    replacement: ';',
    seed: 2041,
  },
  {
    name: 'a replaced run changes a database',
    file: 'test/simulation/moves/simulated-databases.ts',
    text: 'if (this.claimedBy > epoch)',
    replacement: 'if (this.claimedBy > epoch + 1_000_000)',
    seed: 372,
  },
  {
    name: 'the new database is dropped although the tenant has it',
    file: protocol,
    text: "if (!closedByThisRun) yield { kind: 'claim target' };",
    replacement: "if (isGivingUp) yield { kind: 'drop target' };",
    seed: 338,
  },
];
