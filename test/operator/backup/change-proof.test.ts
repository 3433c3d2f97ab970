import { expect } from 'chai';
import fc from 'fast-check';
import { isProvedUnchanged } from '../../../src/operator/backup/change-proof.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { createProofDatabase, type ProofDatabase, schedule } from '../../support/proof-schedules.ts';

describe('proof that a database has not changed', () => {
  let database: ProofDatabase;

  before(async () => {
    database = await createProofDatabase();
  });
  after(() => database.close());

  it('no committed change is ever missed, in whatever order writers and runs take their steps', async () => {
    let proved = 0;
    const run = async (steps: Parameters<ProofDatabase['run']>[0]): Promise<void> => {
      const result = await database.run(steps);
      expect(result.missed, 'changes were missed').to.equal(0);
      proved += result.proved;
    };
    // More of them: npm run drill -- change-proof
    await fc.assert(fc.asyncProperty(schedule, run), { numRuns: 25 });
    expect(proved).to.be.greaterThan(0);
  });

  it('a reset of the counters counts as a change, and so does a database with a session', async () => {
    const poll = () => database.poll();
    const before = await eventually(async () => {
      const counters = await poll();
      return counters?.isUnused && counters;
    });
    expect(isProvedUnchanged(before.fingerprint, await poll())).to.equal(true);
    await withConnection(database.url, client => client.query('select pg_stat_reset()'));
    const after = await eventually(async () => {
      const counters = await poll();
      return counters?.isUnused && counters;
    });
    expect(isProvedUnchanged(before.fingerprint, after)).to.equal(false);
    expect(isProvedUnchanged(null, after)).to.equal(false);
    expect(isProvedUnchanged(after.fingerprint, undefined)).to.equal(false);
    expect(isProvedUnchanged(after.fingerprint, { ...after, isUnused: false })).to.equal(false);
  });
});
