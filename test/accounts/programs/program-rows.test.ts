import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { controlHead } from '../../../src/control/control-version.ts';
import { databaseNameOf, databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { sqlState } from '../../../src/lib/postgres/database-error.ts';
import { quoteIdentifier } from '../../../src/lib/postgres/quote.ts';
import { serviceLoginOf } from '../../../src/operator/schema/service-login.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { controlSql, useWorld } from '../../support/world.ts';
import { storeKey, storeProgram } from './stored-programs.ts';

/** What a login of 0.2.0 runs after it has verified a password: it knows no programs. */
const formerLogin = {
  lockUser: `
  select password_hash = $2 as unchanged, confirmed_at is not null and disabled_at is null as "mayLogIn"
    from users where id = $1 for no key update`,
  insertSession: `insert into sessions (tenant_id, user_id) values ($1, $2) returning id`,
};

describe('the rows of programs', () => {
  const world = useWorld();

  /** Runs a statement with the login of the service, and returns the SQLSTATE of a refusal. */
  const asService = async (text: string, values: unknown[]): Promise<string | number> => {
    const { controlUrl } = world.installation;
    const url = databaseUrl(postgresUrl(), databaseNameOf(controlUrl));

    return withConnection(url, async client => {
      await client.query(`set role ${quoteIdentifier(serviceLoginOf(controlUrl))}`);
      return (await client.query(text, values)).rowCount ?? 0;
    }).catch(error => sqlState(error) ?? 'unknown');
  };

  it('the statements of a login of 0.2.0 give a session to a person, and none to a program', async () => {
    const program = await storeProgram(world, world.acme);
    const [person] = await controlSql<{ id: string }>(
      world,
      'select id from users where email = ?',
      [world.acme.admin.email],
    );
    expect(await asService(formerLogin.lockUser, [program.id, 'none'])).to.equal(1);

    const opened = await asService(formerLogin.insertSession, [world.acme.id, person?.id]);
    const refused = await asService(formerLogin.insertSession, [world.acme.id, program.id]);
    const moved = await asService('update sessions set user_id = $1 where user_id = $2', [
      program.id,
      person?.id,
    ]);

    expect(opened).to.equal(1);
    expect(refused).to.equal('42501');
    expect(moved).to.equal('42501');
    expect(
      await controlSql(world, 'select from sessions where user_id = ?', [program.id]),
    ).to.deep.equal([]);
  });

  it('a program gets no address and no password, and nobody becomes one, whoever asks', async () => {
    const { id, guid } = await storeProgram(world, world.acme);
    const change = (columns: string) => `update users set ${columns} where id = $1`;

    for (const columns of [
      `email = 'till@acme.test'`,
      `password_hash = '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$aGFzaA'`,
      `last_name = 'Newman'`,
      `invited_at = now()`,
      `confirmed_at = null`,
    ]) {
      expect(await asService(change(columns), [id]), columns).to.be.oneOf(['23514', '42501']);
    }
    expect(await asService(change(`kind = 'person'`), [id])).to.equal('42501');
    const fault = await controlSql(world, `update users set kind = 'person' where id = ?`, [
      id,
    ]).catch(error => sqlState(error));
    expect(fault).to.equal('23514');

    const disguised = await asService(
      `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id)
       select $1, $2, 'none', 'Nora', 'Newman', id from roles where tenant_id = $1 and name = 'Member'`,
      [world.acme.id, `program:${randomUUID()}`],
    );
    expect(disguised).to.equal('23514');
    expect(await controlSql(world, 'select email from users where id = ?', [id])).to.deep.equal([
      { email: `program:${guid}` },
    ]);
  });

  it('the audit log has the changes of a program and its keys under their own names, without a hash', async () => {
    const { id } = await storeProgram(world, world.acme, { networks: ['10.0.0.0/8'] });
    await storeKey(world, world.acme, id);
    await controlSql(world, 'update program_keys set last_used_at = now() where program_id = ?', [
      id,
    ]);
    await controlSql(world, 'update program_keys set revoked_at = now() where program_id = ?', [
      id,
    ]);
    await controlSql(world, `update users set networks = '{}' where id = ?`, [id]);

    const entries = await controlSql<{ action: string; resource: string; after: object }>(
      world,
      `select action, resource, after from audit_log
        where resource in ('Program', 'ProgramKey') and (record_key = ? or after ->> 'program_id' = ?) order by id`,
      [String(id), String(id)],
    );

    expect(entries.map(({ action, resource }) => `${action} ${resource}`)).to.deep.equal([
      'create Program',
      'create ProgramKey',
      'update ProgramKey',
      'update Program',
    ]);
    expect(entries[0]?.after).to.have.all.keys(
      'id',
      'guid',
      'name',
      'role',
      'scope',
      'entity_id',
      'networks',
      'is_disabled',
      'created_at',
    );
    expect(entries[1]?.after).to.have.all.keys(
      'id',
      'program_id',
      'prefix',
      'made_by',
      'created_at',
      'expires_at',
      'revoked_at',
    );
  });

  it('status names the running processes of a former build, and none of this one', async () => {
    const status = async () => {
      const { stdout } = await runCommand(
        'scripts/tenant.ts',
        ['status', '--json'],
        world.environment,
      );
      return JSON.parse(stdout).formerBuilds;
    };
    expect(await status()).to.deep.equal([]);
    await controlSql(
      world,
      `insert into processes (id, kind, host, pid, build, tenant_head, control_head, seen_at)
       values (gen_random_uuid(), 'service', 'elsewhere', 17, '0.2.0', '0001-first-schema', '0001-first-schema',
               now() + interval '50 seconds')`,
    );

    expect(await status()).to.deep.equal([
      { host: 'elsewhere', pid: 17, build: '0.2.0', head: '0001-first-schema' },
    ]);
    const { stdout } = await runCommand('scripts/tenant.ts', ['status'], world.environment);
    expect(stdout).to.match(/former build[\s\S]*elsewhere +17 +0\.2\.0/);
    expect((await controlHead()) > '0001-first-schema').to.equal(true);
  });
});
