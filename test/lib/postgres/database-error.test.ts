import { expect } from 'chai';
import pg from 'pg';
import { mayBeCommitted } from '../../../src/lib/postgres/commit-outcome.ts';
import { databaseProblem } from '../../../src/lib/postgres/database-error.ts';

const serverError = (code: string): pg.DatabaseError =>
  Object.assign(new pg.DatabaseError('error', 0, 'error'), { code });

describe('problems of databases', () => {
  it('a change whose session the server ended, because its process had stopped meanwhile, gets 503', () => {
    for (const code of ['25P03', '25P04', '57P01', '57P05']) {
      expect(databaseProblem(serverError(code))?.status, code).to.equal(503);
    }
  });

  it('a request whose connection cannot begin the era of a restored database, because a session that begins at the same moment is not ended, gets 503', () => {
    expect(databaseProblem(serverError('55006'))?.status).to.equal(503);
  });
});

describe('commit without a confirmation', () => {
  it('a commit may have taken effect if its reply was lost, or if the server ended or cancelled it', () => {
    // PostgreSQL holds such an interrupt off until the commit is made, and then raises it
    // before the confirmation.
    for (const code of ['57P01', '57P02', '57014']) {
      expect(mayBeCommitted(serverError(code)), code).to.equal(true);
    }
    expect(mayBeCommitted(Object.assign(new Error('reset'), { code: 'ECONNRESET' }))).to.equal(
      true,
    );
  });

  it('a commit has not taken effect when the server refused it, or when the statement before it failed', () => {
    for (const code of ['40001', '40P01', '23503', '25P02']) {
      expect(mayBeCommitted(serverError(code)), code).to.equal(false);
    }
    expect(mayBeCommitted(serverError('57014'), false)).to.equal(false);
  });
});
