import type { Mutant } from '../mutants.ts';

const protocol = 'src/operator/archives/backup-protocol.ts';
const proof = 'src/postgres/change-counters.ts';
const effects = 'test/simulation/backups/simulated-backup.ts';

/** Faults that are planted in the protocol of backup runs and the proof, or in what they rely on. */
export const backupMutants: readonly Mutant[] = [
  {
    name: 'a database with a session is proved unchanged',
    file: proof,
    text: 'now?.isUnused === true && now.fingerprint === proof',
    replacement: 'now?.fingerprint === proof',
    seed: 1,
  },
  {
    name: 'a database without a session is proved unchanged whatever its counters say',
    file: proof,
    text: 'now?.isUnused === true && now.fingerprint === proof',
    replacement: 'now?.isUnused === true && proof !== null',
    seed: 3,
  },
  {
    name: 'counters are read before the sessions',
    file: effects,
    text: 'isUsed: database.isUsed }));\n      await step();\n',
    replacement:
      'isUsed: database.isUsed }));\n      const read = databases.map(each => each.counters(false).fingerprint);\n      await step();\n' +
      '      return found.map(({ database, visible }, at) => ({ tenant: database.tenant, database, visible, counters: { isUnused: !database.isUsed, fingerprint: read[at] } }));\n',
    seed: 31,
  },
  {
    name: 'a reset of the counters cannot be seen',
    file: 'test/simulation/backups/simulated-database.ts',
    text: 'this.#epoch++;',
    replacement: '',
    seed: 4,
  },
  {
    name: 'counters are read after the snapshot',
    file: effects,
    text: 'entry.snapshotAt = at;',
    replacement:
      'entry.snapshotAt = at;\n      entry.proof = databases.find(({ tenant }) => tenant === entry.tenant).counters(false).fingerprint;',
    seed: 81,
  },
  {
    name: 'a damaged archive counts as current',
    file: protocol,
    text: 'archive.fault === null && ',
    replacement: '',
    seed: 11,
  },
  {
    name: 'the keys are not in the target when the first archive is written',
    file: protocol,
    text: '  await effects.storeKeys();\n',
    replacement: '',
    seed: 1,
  },
  {
    name: 'an archive is complete before its file is',
    file: protocol,
    text: 'async () => effects.complete(planned, await effects.write(planned))',
    replacement: 'async () => { await effects.complete(planned, { at: new Date(0) }); await effects.write(planned); }',
    seed: 1,
  },
  {
    name: 'what killed runs have left stays',
    file: protocol,
    text: '  await effects.removeLeftovers();\n',
    replacement: '',
    seed: 1,
  },
  {
    name: 'the control database is not archived after the tenants',
    file: protocol,
    text: '  await effects.archiveControl();\n',
    replacement: '',
    seed: 1,
  },
  {
    name: 'an archive that failed stays recorded',
    file: protocol,
    text: '      await effects.abandon(planned, error);\n',
    replacement: '',
    seed: 2,
  },
];
