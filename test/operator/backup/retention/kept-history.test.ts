import { expect } from 'chai';
import { databaseUrl } from '../../../../src/control/server-urls.ts';
import { withConnection } from '../../../../src/lib/postgres/connection.ts';
import { cutoffOf, parseAge } from '../../../../src/operator/backup/retention/retention-age.ts';
import { generatePassword } from '../../../../src/operator/credentials/users.ts';
import { sql, useWorld } from '../../../support/world.ts';

describe('history that no retention has asked to remove', () => {
  const world = useWorld();

  before(() =>
    sql(
      world.acme,
      `insert into activities (activity_code, recorded_by, recorded_from) values (7, 1, '::1')`,
    ),
  );

  it('neither the login of a tenant nor an operator with psql can remove rows, whatever they set', async () => {
    const { adminUrl, database } = world.acme;
    const password = generatePassword();
    await sql(world.acme, `alter role ${database} password '${password}'`);

    const attempt = (url: string, text: string): Promise<string> =>
      withConnection(url, client => client.query(text)).then(
        () => 'done',
        error => error.message,
      );

    const own = databaseUrl(adminUrl, database, { user: database, password });
    const lift = `set app.removal = 'activities'; `;

    for (const text of [
      `${lift} delete from activities`,
      'delete from audit_log',
      'truncate activities',
    ]) {
      expect(await attempt(own, text)).to.match(/^permission denied for table/);
    }
    for (const name of ['remove_old_activities', 'remove_old_audit_entries']) {
      expect(await attempt(own, `select ${name}(1, 9, '2020-01-01')`)).to.match(
        /^permission denied for function/,
      );
    }

    await sql(world.acme, `grant delete on activities to ${database}`);
    expect(await attempt(own, `${lift} delete from activities`)).to.equal(
      'activities is append-only',
    );

    expect(await attempt(adminUrl, 'delete from activities')).to.equal('activities is append-only');
    expect(await attempt(adminUrl, `${lift} update activities set screen = 'x'`)).to.equal(
      'activities is append-only',
    );
    expect(await attempt(adminUrl, `select remove_old_activities(1, 9, now())`)).to.include(
      '28 days',
    );
  });
});

describe('age of a retention', () => {
  it('the cutoff is the beginning of a month, and at least the given age lies between it and now', () => {
    const now = new Date('2026-03-31T23:00:00Z');
    const cutoffs = ['30d', '90d', '1m', '18m', '2y', 'forever'].map(age =>
      cutoffOf(age, now)?.toISOString().slice(0, 10),
    );
    expect(cutoffs).to.deep.equal([
      '2026-03-01',
      '2025-12-01',
      '2026-02-01',
      '2024-09-01',
      '2024-03-01',
      undefined,
    ]);
  });

  it('an age is at least 30 days and at most 100 years', () => {
    expect(['29d', '0y', '101y', '2', 'y', '1.5y', '-2y'].map(parseAge)).to.deep.equal(
      Array(7).fill(undefined),
    );
    expect(['30d', ' 2Y ', '18m', 'Forever'].map(parseAge)).to.deep.equal([
      '30d',
      '2y',
      '18m',
      'forever',
    ]);
  });
});
