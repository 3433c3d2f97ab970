import { expect } from 'chai';
import { explain } from '../../../src/lib/log/operator-error.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { errorOf } from '../../support/errors.ts';
import { useWorld } from '../../support/world.ts';

describe('errors for operators', () => {
  const world = useWorld();

  it('a missing privilege is named as PostgreSQL names it, with who can grant it, and no other cause', async () => {
    const refusals = [
      ['set role pg_monitor; select from audit_log', 'permission denied for table audit_log'],
      ['set role pg_monitor; create database elsewhere', 'permission denied to create database'],
      [
        'set role pg_monitor; alter table countries add x integer',
        'must be owner of table countries',
      ],
    ] as const;

    for (const [statements, reason] of refusals) {
      const error = await errorOf(
        withConnection(world.acme.adminUrl, async client => {
          for (const statement of statements.split('; ')) await client.query(statement);
        }),
      );
      const text = explain(error);

      expect(text).to.include(reason);
      expect(text)
        .to.include('or a superuser, grant it to that login')
        .and.to.include('bin/backoffice doctor');
      expect(text).to.not.include('DATABASE_URL');
    }
  });
});
