import type { Mutant } from '../mutants.ts';

const protocol = 'src/operator/restore/lost/lost-protocol.ts';
const run = 'test/simulation/lost-restores/lost-run.ts';

/** Faults that are planted in the protocol of restores of lost databases, or in what it relies on. */
export const lostMutants: readonly Mutant[] = [
  {
    name: 'a run uses the names that a killed one has given',
    file: run,
    text: 'this.#database = this.#world.newDatabase();',
    replacement: 'if (!this.#wasRestoring) this.#database = this.#world.newDatabase();',
    seed: 3,
  },
  {
    name: 'a run that has lost its lock takes the tenant out of service',
    file: 'test/simulation/operator-run.ts',
    text: 'if (!this.#isConnected)',
    replacement: 'if (false)',
    seed: 10,
  },
  {
    name: 'the tenant is served before its database is filled',
    file: protocol,
    text: `  'fill database',
  'serve',`,
    replacement: `  'serve',
  'fill database',`,
    seed: 1,
  },
  {
    name: 'the remains are removed after the tenant has other names',
    file: protocol,
    text: `  'remove remains',
  'take out of service',`,
    replacement: `  'take out of service',
  'remove remains',`,
    seed: 3,
  },
  {
    name: 'a run drops the database that the tenant has now',
    file: run,
    text: 'const remains = this.#found;',
    replacement: 'const remains = control.named;',
    seed: 39,
  },
  {
    name: 'a database is restored that is not lost',
    file: run,
    text: 'if (this.#found.exists && !this.#wasRestoring) this.kill();',
    replacement: 'if (false) this.kill();',
    seed: 1,
  },
];
