import { expect } from 'chai';
import fc from 'fast-check';
import {
  createProofDatabase,
  type ProofDatabase,
  type ProofMethod,
  production,
  schedule,
} from '../support/proof-schedules.ts';

const schedules = Number(process.env.PROOF_RUNS ?? 10_000);

/**
 * Databases in which schedules run at the same time: each waits for its sessions most of the
 * time.
 */
const lanes = 4;

/**
 * Faults of the proof. A schedule must find each of them: otherwise the schedules prove
 * nothing.
 */
const faults: Record<string, ProofMethod> = {
  'a database with a session is proved unchanged': {
    ...production,
    isProved: (proof, now) => now !== undefined && now.fingerprint === proof,
  },
  'the counters of an archive are read after its snapshot': { ...production, pollsBefore: false },
  'a reset of the counters is no change': {
    ...production,
    isProved: (proof, now) =>
      now?.isUnused === true &&
      proof !== null &&
      withoutResets(now.fingerprint) === withoutResets(proof),
  },
  'inserted rows are not counted': {
    ...production,
    isProved: (proof, now) =>
      now?.isUnused === true &&
      proof !== null &&
      withoutInserts(now.fingerprint) === withoutInserts(proof),
  },
};

/**
 * Cluster, start, database, inserted, updated and deleted rows, and the two times of resets.
 */
const withoutResets = (fingerprint: string): string => fingerprint.split(' ').slice(0, 6).join(' ');
const withoutInserts = (fingerprint: string): string =>
  fingerprint.split(' ').toSpliced(3, 1).join(' ');

describe('drill: proof that a database has not changed', () => {
  const databases: ProofDatabase[] = [];

  before(async () => {
    for (let lane = 0; lane < lanes; lane++) databases.push(await createProofDatabase());
  });
  after(() => Promise.all(databases.map(database => database.close())));

  it(`in ${schedules} schedules of writers and backup runs, no committed change is missed`, async function () {
    this.timeout(0);
    let proved = 0;

    const runLane = (database: ProofDatabase): Promise<void> => {
      const run = async (steps: Parameters<ProofDatabase['run']>[0]): Promise<void> => {
        const result = await database.run(steps);
        expect(result.missed, 'changes were missed').to.equal(0);
        proved += result.proved;
      };

      return fc.assert(fc.asyncProperty(schedule, run), { numRuns: Math.ceil(schedules / lanes) });
    };

    await Promise.all(databases.map(runLane));
    console.log(`      ${schedules} schedules, ${proved} times proved unchanged`);
    expect(proved).to.be.greaterThan(schedules / 10);
  });

  for (const [fault, method] of Object.entries(faults)) {
    it(`the schedules find the planted fault that ${fault}`, async function () {
      this.timeout(600_000);
      const [database] = databases as [ProofDatabase];
      const isRight = async (steps: Parameters<ProofDatabase['run']>[0]): Promise<boolean> =>
        (await database.run(steps, method)).missed === 0;

      const result = await fc.check(fc.asyncProperty(schedule, isRight), {
        numRuns: 2_000,
        endOnFailure: true,
      });

      expect(result.failed).to.equal(true);
      console.log(`      found by schedule ${result.numRuns}`);
    });
  }
});
