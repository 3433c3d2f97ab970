import { expect } from 'chai';
import { failureLine } from '../../../src/lib/embedded/failure-line.ts';

const time = '2026-11-26 23:44:09.865 UTC [18914]';

describe('why the embedded PostgreSQL does not start', () => {
  it('the reason of a failed start is the line with the reason of the system, not the consequences and hints after it', () => {
    const full = `FATAL:  could not extend file "base/1/2691": No space left on device`;
    const initdb = [
      'creating configuration files ... ok',
      `running bootstrap script ... ${time} ${full}`,
      'child process exited with exit code 1',
      'initdb: removing contents of data directory "/data"',
    ];
    const fork = `${time} LOG:  could not fork new process for connection: Resource temporarily unavailable`;
    const server = [
      fork,
      `${time} LOG:  database system was interrupted while in recovery`,
      `${time} HINT:  This probably means that some data is corrupted and you will have to use the last backup for recovery.`,
      `${time} FATAL:  the database system is starting up`,
      `${time} LOG:  database system is shut down`,
    ];

    expect(failureLine(`${initdb.join('\n')}\n`)).to.include(full);
    expect(failureLine(server.join('\n'))).to.equal(fork);
  });

  it('without a reason of the system, the reason of a failed start is the last error, or else the last line', () => {
    const fatal = `${time} FATAL:  configuration file "/data/postgresql.conf" contains errors`;

    expect(
      failureLine(`${time} LOG:  starting\n${fatal}\n${time} LOG:  database system is shut down\n`),
    ).to.equal(fatal);
    expect(failureLine('initdb: error: program "postgres" is needed\nend\n')).to.match(
      /^initdb: error: /,
    );
    expect(failureLine('first\nlast\n')).to.equal('last');
    expect(failureLine('')).to.equal('');
  });
});
