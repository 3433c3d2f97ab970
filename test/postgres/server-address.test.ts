import { expect } from 'chai';
import { requireServerVersion } from '../../src/operator/control/control-head.ts';

describe('version of a server', () => {
  it('a control database on a server older than PostgreSQL 15 is refused with one sentence', () => {
    for (const version of [150_000, 180_004]) requireServerVersion(version);
    expect(() => requireServerVersion(140_019)).to.throw(
      /^The control database is on PostgreSQL 14\. Upgrade its server: PostgreSQL 15 or later is required$/,
    );
  });
});
