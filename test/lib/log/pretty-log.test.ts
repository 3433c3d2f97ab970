import { stripVTControlCharacters } from 'node:util';
import { expect } from 'chai';
import { prettyLine } from '../../../src/lib/log/pretty-log.ts';

const time = new Date(2026, 0, 5, 9, 30, 7).getTime();
const line = (fields: object): string =>
  stripVTControlCharacters(
    prettyLine(JSON.stringify({ level: 30, time, pid: 1, hostname: 'host', ...fields })),
  );

describe('log for people on a terminal', () => {
  it('the line of an event shows its message, then its other fields', () => {
    const fields = {
      event: 'stopping',
      reason: 'SIGINT',
      msg: 'stopping after the running requests',
    };

    expect(line(fields)).to.equal(
      '09:30:07 stopping after the running requests event=stopping reason=SIGINT\n',
    );
    expect(line({ event: 'listening', port: 8080, msg: 'listening' })).to.equal(
      '09:30:07 listening port=8080\n',
    );
    expect(line({ event: 'tracing' })).to.equal('09:30:07 tracing\n');
  });

  it('the line of a request shows its method, route, status and duration', () => {
    const fields = {
      method: 'GET',
      route: '/api/v1/Currency',
      status: 200,
      ms: 1.5,
      user: null,
      ip: '10.0.0.1',
    };

    expect(line(fields)).to.equal('09:30:07 GET /api/v1/Currency 200 1.5 ms ip=10.0.0.1\n');
    expect(line({ ...fields, route: undefined, status: 404 })).to.include(
      'GET (no route) 404 1.5 ms',
    );
  });

  it('a value sends no control characters to the terminal, and a value with spaces is quoted', () => {
    const text = line({ event: 'mail', address: '\u001b[2J', name: 'two words', msg: 'sent' });
    expect(text).to.equal('09:30:07 sent event=mail address="\\u001b[2J" name="two words"\n');
  });

  it('a line that is not JSON stays as it is', () => {
    expect(prettyLine('not JSON\n')).to.equal('not JSON\n');
  });
});
