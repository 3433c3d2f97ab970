import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { closedStamp } from '../../src/operator/databases/store/database-stamp.ts';
import { diagnose } from '../../src/operator/doctor/doctor.ts';
import { type Check, errors } from '../../src/operator/doctor/finding.ts';
import type { ReportedFinding } from '../../src/operator/doctor/reports.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { createDedicatedServer } from '../support/dedicated-server.ts';
import { startOwnServer } from '../support/own-server.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { backUp } from '../support/succeed.ts';
import { quickSettings } from '../support/test-server.ts';
import { use } from '../support/use.ts';

/** The folder of the project, in which a person pastes what is printed. */
const root = fileURLToPath(new URL('../..', import.meta.url));

/** An error, and what a person does who reads its remedy. */
interface Fault {
  title: string;
  check: Check;
  make: () => Promise<unknown>;
  /** Returns the text that the command reads from stdin. */
  input?: () => string;
  /** True if the remedy has several commands, one after the other. */
  isSequence?: boolean;
  /** Removes what the mended fault leaves. */
  cleanUp?: () => Promise<unknown>;
}

/**
 * SQL for a sealed secret with another last byte: it names the key that sealed it, and does not
 * open.
 */
const damaged = (column: string): string =>
  `set_byte(${column}, octet_length(${column}) - 1, 255 - get_byte(${column}, octet_length(${column}) - 1))`;

/** The commands for which a terminal asks whether it is meant. */
const asked =
  /^bin\/backoffice (purge|restore swap|databases drop|key disable|user factors reset) /;

/** The commands that another test runs as they are printed. */
const elsewhere: Partial<Record<Check, readonly string[]>> = {
  // test/drill/poolers.drill.ts: with a pooler.
  shared_sessions: errors.shared_sessions,
  // plain-server.test.ts: with a login that is no superuser.
  operator_rights: errors.operator_rights,
  // behind.test.ts: with the next build.
  behind: errors.behind,
  // test/drill/killed-control-restores.drill.ts: with a restore that is killed.
  unfinished_control_restore: ['bin/backoffice control restore --archive NAME'],
};

describe('drill: errors of doctor', () => {
  const server = use(createDedicatedServer);
  const far = use(() => startOwnServer('far', quickSettings));
  const usedCommands = new Set<string>();
  let environment: Record<string, string>;
  let folder: string;
  let acme: string;

  before(async () => {
    folder = await makeServerFolder('mended-archives');
    environment = {
      ...server.environment,
      ...(await backupSettings(folder)),
      PATH: process.env.PATH ?? '',
    };
    acme = (await server.provision('acme')).tenant.databaseName;
    await server.provision('globex');
    await backUp(environment);
    await run('bin/backoffice server add far', far.url);
  });
  after(() => rm(folder, { recursive: true, force: true }));

  /** Runs a line in a shell, as it is printed. */
  async function run(line: string, input = ''): Promise<string> {
    const running = promisify(execFile)('sh', ['-c', line], { env: environment, cwd: root });
    running.child.stdin?.end(input);
    const { stdout, stderr } = await running;

    return stdout + stderr;
  }

  const find = async (): Promise<ReportedFinding[]> =>
    (await diagnose(server.installation)).findings;
  const databaseOf = (slug: string) => server.databaseOf(slug);

  const roleOf = async (slug: string): Promise<string> =>
    (
      await server.control<{ role: string }>(
        `select role_name as role from tenants where slug = '${slug}'`,
      )
    )[0]?.role ?? '';
  const locked = Promise.withResolvers<void>();
  /** Stores the report, as `doctor` does: `doctor --fix` takes ids of the last report. */
  const storeReport = () => run('bin/backoffice doctor > /dev/null || true');

  /** Returns the commands that a remedy has. */
  function commandsOf({ remedy }: ReportedFinding): string[] {
    const command =
      /bin\/backoffice [a-z][\w-]*(?: [\w@+:.,/=-]*[\w@+/=])*|psql "\$DATABASE_URL"(?: -c '(?:[^']|'\\'')*')+/g;
    return remedy.match(command) ?? [];
  }

  /** Returns which command of the table it is. */
  function templateOf(check: Check, command: string): string | undefined {
    const templates: readonly string[] =
      (errors as Partial<Record<Check, readonly string[]>>)[check] ?? [];
    return templates.find(template => {
      const escaped = template.replace(/[$^\\.*+?()[\]{}|]/g, '\\$&');
      const pattern = escaped.replace(/(?<![A-Z_$])[A-Z]{3,}(?![A-Z_])/g, '[^\\s"\']+');
      return new RegExp(`^${pattern}$`).test(command);
    });
  }

  const dropDatabase = (name: string) =>
    server.sql(`drop database if exists "${name}" with (force)`);
  const copyOf = async (name: string, template: string): Promise<void> => {
    await server.sql(`create database "${name}" template "${template}"`);
    await server.sql(`revoke all on database "${name}" from public`);
  };
  const replaceUrl = async (url: string): Promise<void> => {
    const sealed = server.installation.secrets.seal(url, 'server_url:far').toString('hex');
    await server.control(
      `update servers set admin_url = decode('${sealed}', 'hex') where name = 'far'`,
    );
  };

  const faults: Fault[] = [
    {
      title: 'a server that has another address',
      check: 'server_unreachable',
      make: () => replaceUrl('postgresql://nobody@127.0.0.1:1/postgres'),
      input: () => far.url,
    },
    {
      title: 'the URL of a server that cannot be decrypted',
      check: 'secret_does_not_open',
      make: () =>
        server.control(`update servers set admin_url = ${damaged('admin_url')} where name = 'far'`),
      input: () => far.url,
    },
    {
      title: 'a password that cannot be decrypted',
      check: 'secret_does_not_open',
      make: () =>
        server.control(
          `update tenants set role_password = ${damaged('role_password')} where slug = 'acme'`,
        ),
    },
    {
      title: 'a retiring signing key that cannot be decrypted',
      check: 'secret_does_not_open',
      make: () =>
        server.control(`insert into signing_keys (kid, tenant_id, secret, status)
                        select gen_random_uuid(), tenant_id, ${damaged('secret')}, 'retiring'
                          from signing_keys where status = 'active' limit 1`),
    },
    {
      title: 'an authenticator app that cannot be decrypted',
      check: 'secret_does_not_open',
      make: () =>
        server.control(`insert into factors (tenant_id, user_id, kind, name, secret, confirmed_at)
                        select u.tenant_id, u.id, 'totp', 'Phone', ${damaged('secret')}, now()
                          from users u join signing_keys k on k.tenant_id = u.tenant_id limit 1`),
    },
    {
      title: 'a tenant without an active key',
      check: 'missing_key',
      make: () =>
        server.control(`update signing_keys set status = 'retiring'
                                   where tenant_id = (select id from tenants where slug = 'acme')`),
    },
    {
      title: 'a lost database',
      check: 'missing_database',
      make: () => server.sql(`drop database "${acme}"`),
    },
    {
      title: 'the lost database of a deleted tenant',
      check: 'missing_database',
      make: async () => {
        await server.provision('hooli');
        await server.control(
          `update tenants set status = 'deleted', purging_at = now() where slug = 'hooli'`,
        );
        // The tenant is placed on the server with the most room.
        const drop = `drop database "${await databaseOf('hooli')}"`;
        await withConnection(far.url, client => client.query(drop));
      },
    },
    {
      title: 'a lost database that was kept',
      check: 'missing_database',
      make: () =>
        server.control(`insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin)
                        select id, server_id, 'office_tenant_7906', 'office_tenant_7906', 'filled', 'template'
                          from tenants where slug = 'acme'`),
    },
    {
      title: 'a renamed database',
      check: 'renamed_database',
      make: async () =>
        server.sql(`alter database "${await databaseOf('globex')}" rename to elsewhere`),
    },
    {
      title: 'a half dropped database of a tenant',
      check: 'half_dropped_database',
      make: async () =>
        server.sql(
          `update pg_database set datconnlimit = -2 where datname = '${await databaseOf('globex')}'`,
        ),
    },
    {
      title: 'a half dropped database of nobody',
      check: 'half_dropped_database',
      make: async () => {
        await server.sql('create database "office_lost_78"');
        await server.sql(
          `update pg_database set datconnlimit = -2 where datname = 'office_lost_78'`,
        );
      },
    },
    {
      title: 'a closed database',
      check: 'closed_database',
      make: async () =>
        server.sql(`alter database "${await databaseOf('acme')}" allow_connections false`),
    },
    {
      title: 'a kept database that lets its tenant in',
      check: 'open_database',
      make: async () => {
        await copyOf('office_tenant_7912', await databaseOf('acme'));
        await server.sql('create role office_tenant_7912 login');
        await server.control(
          `insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin)
           select id, server_id, 'office_tenant_7912', 'office_tenant_7912', 'kept', 'template'
             from tenants where slug = 'acme'`,
        );
      },
      cleanUp: async () => {
        await server.control(
          `delete from tenant_databases where database_name = 'office_tenant_7912'`,
        );
        await dropDatabase('office_tenant_7912');
        await server.sql('drop role office_tenant_7912');
      },
    },
    {
      title: 'a database in the order of a language',
      check: 'text_order_differs',
      make: async () =>
        server.sql(
          `update pg_database set datlocprovider = 'i', datlocale = 'tr', datcollversion = null
            where datname = '${await databaseOf('acme')}'`,
        ),
      isSequence: true,
    },
    {
      title: 'a database of nobody',
      check: 'orphan_database',
      make: async () => {
        await server.sql('create database "office_lost_77"');
        await server.sql('revoke all on database "office_lost_77" from public');
      },
    },
    {
      title: 'the database of a tenant that was purged meanwhile',
      check: 'orphan_database',
      make: async () => {
        const [row] = await server.control<{ guid: string }>(
          `insert into purged_tenants (id, guid, slug, name, database_name, created_at)
           values (7910, gen_random_uuid(), 'gone', 'gone', 'office_tenant_7910', now()) returning guid`,
        );
        await copyOf('office_tenant_7911', await databaseOf('acme'));
        await server.sql(
          `update tenant_identity set guid = '${closedStamp(row?.guid ?? '')}'`,
          'office_tenant_7911',
        );
      },
      cleanUp: () => server.control('delete from purged_tenants where id = 7910'),
    },
    {
      title: 'a login role of nobody',
      check: 'orphan_role',
      make: () => server.sql('create role office_tenant_7900'),
    },
    {
      title: 'a login role of nobody with objects and rights in another database',
      check: 'orphan_role',
      make: async () => {
        await server.sql('create role office_tenant_7901');
        await server.sql('create database reports');
        await server.sql('create schema mine authorization office_tenant_7901', 'reports');
        await server.sql(
          'create table figures (); grant select on figures to office_tenant_7901',
          'reports',
        );
      },
      cleanUp: () => dropDatabase('reports'),
    },
    {
      title: 'a half provisioned tenant',
      check: 'stuck_provisioning',
      make: async () => {
        await server.provision('initech');
        await server.control(`update tenants set status = 'provisioning' where slug = 'initech'`);
      },
    },
    {
      title: 'a missing login role',
      check: 'missing_role',
      make: async () => {
        const role = await databaseOf('acme');
        await server.sql(`drop owned by "${role}"; drop role "${role}"`);
      },
    },
    {
      title: 'a login role without its group',
      check: 'missing_rights',
      make: async () => server.sql(`revoke office_tenant from "${await databaseOf('acme')}"`),
    },
    {
      title: 'a login role that may not log in',
      check: 'missing_rights',
      make: async () => server.sql(`alter role "${await databaseOf('acme')}" nologin`),
    },
    {
      title: 'a login role with another password',
      check: 'login_fails',
      make: async () => server.sql(`alter role "${await databaseOf('acme')}" password 'another'`),
    },
    {
      title: 'a login role with an attribute',
      check: 'excess_rights',
      make: async () => server.sql(`alter role "${await databaseOf('acme')}" createdb`),
    },
    {
      title: 'a login role that owns something',
      check: 'excess_rights',
      make: async () =>
        server.sql(
          `create schema mine authorization "${await roleOf('acme')}"`,
          await databaseOf('acme'),
        ),
      cleanUp: async () => server.sql('drop schema mine', await databaseOf('acme')),
    },
    {
      title: 'a login role with rights in another database',
      check: 'excess_rights',
      make: async () => {
        await server.sql('create database reports');
        await server.sql(
          `create table figures (); grant select on figures to "${await roleOf('acme')}"`,
          'reports',
        );
      },
      cleanUp: () => dropDatabase('reports'),
    },
    {
      title: 'PUBLIC on the control database',
      check: 'public_access',
      make: () => server.sql('grant connect on database office to public'),
    },
    {
      title: 'the guid of nobody in a database',
      check: 'wrong_identity',
      make: async () =>
        server.sql('update tenant_identity set guid = gen_random_uuid()', await databaseOf('acme')),
    },
    {
      title: 'no guid in a database',
      check: 'wrong_identity',
      make: async () => server.sql('delete from tenant_identity', await databaseOf('acme')),
    },
    {
      title: 'the data of another tenant in the place of a database',
      check: 'wrong_identity',
      make: async () => {
        const name = await databaseOf('acme');
        await server.sql(`alter database "${name}" rename to elsewhere`);
        await copyOf(name, await databaseOf('globex'));
      },
      cleanUp: async () => dropDatabase(`${await databaseOf('acme')}_aside`),
    },
    {
      title: 'a subscription that writes to a database',
      check: 'replicated_database',
      make: async () => {
        const name = await databaseOf('acme');
        await server.sql(
          `create subscription elsewhere connection 'host=127.0.0.1 port=1 dbname=none' publication p
             with (connect = false, slot_name = none)`,
          name,
        );
        await server.sql('update pg_subscription set subenabled = true', name);
      },
      cleanUp: async () => server.sql('drop subscription elsewhere', await databaseOf('acme')),
    },
    {
      title: 'rows from the future of a server',
      check: 'rows_from_future',
      make: async () =>
        server.sql(
          `insert into activities (activity_code, recorded_by, recorded_from, feed_xid)
           values (1, 0, '', '1000000000')`,
          await databaseOf('acme'),
        ),
    },
    {
      title: 'a sequence behind its rows',
      check: 'sequence_behind',
      make: async () =>
        server.sql(
          `insert into entity_statuses (title) values ('behind');
           select setval('entity_statuses_id_seq', 1, false)`,
          await databaseOf('acme'),
        ),
    },
    {
      title: 'a version in the control database that the database does not have',
      check: 'version_differs',
      make: () =>
        server.control(`update tenants set schema_version = '0000-before' where slug = 'acme'`),
    },
    {
      title: 'a version in the identity that the database does not have',
      check: 'version_differs',
      make: async () =>
        server.sql(
          `set session_replication_role = replica; update tenant_identity set schema_version = '0000-before'`,
          await databaseOf('acme'),
        ),
    },
    {
      title: 'an index and a table that nobody has migrated',
      check: 'schema_drift',
      make: async () =>
        server.sql(
          'create index by_hand on entity_statuses (weighting); create table notes (id serial primary key)',
          await databaseOf('acme'),
        ),
      cleanUp: async () => server.sql('drop schema kept cascade', await databaseOf('acme')),
    },
    {
      title: 'a dropped trigger and revoked rights',
      check: 'schema_drift',
      make: async () =>
        server.sql(
          'drop trigger audit_change on webhooks; revoke all on countries from office_tenant',
          await databaseOf('acme'),
        ),
    },
    {
      title: 'a dropped column',
      check: 'schema_drift',
      make: async () =>
        server.sql('alter table countries drop column country_name', await databaseOf('acme')),
      isSequence: true,
    },
    {
      title: 'a session that holds a transaction open in a database',
      check: 'not_examined',
      make: async () => {
        const holding = withConnection(
          databaseUrl(server.url, await databaseOf('globex')),
          async client => {
            const ended = new Promise<void>(resolve => client.once('error', () => resolve()));
            await client.query('begin; lock table tenant_identity');
            locked.resolve();
            await ended;
          },
        );
        holding.catch(() => {});
        await locked.promise;
      },
    },
    {
      title: 'a fence that no process works on',
      check: 'unfinished_switch',
      make: () =>
        server.control(`insert into tenant_fences (tenant_guid, id, closed)
                        select guid, gen_random_uuid(), true from tenants where slug = 'globex'`),
    },
    {
      title: 'a restore of the control database that was given up',
      check: 'unfinished_control_restore',
      make: async () => {
        await server.sql('create database office_restoring');
        await server.sql('revoke all on database office_restoring from public');
      },
    },
  ];

  /** More commands than any of these errors needs, one after the other. */
  const maxCommands = 8;

  for (const { title, check, make, isSequence, cleanUp, input } of faults) {
    it(`${check} is mended by the commands that doctor prints: ${title}`, async function () {
      this.timeout(240_000);
      await make();
      const first = await find();
      expect(
        first.map(finding => finding.check),
        JSON.stringify(first),
      ).to.include(check);

      for (let count = 0; count < maxCommands; count++) {
        const open = (await find()).filter(({ severity }) => severity === 'error');
        const finding = open.find(each => each.check === check) ?? open[0];
        if (!finding) break;

        await storeReport();
        for (const command of commandsOf(finding).slice(0, isSequence ? undefined : 1)) {
          const template = templateOf(finding.check, command);
          expect(template, `${finding.check}: ${finding.remedy}`).to.be.a('string');
          usedCommands.add(`${finding.check}: ${template}`);
          const line = asked.test(command) ? `${command} --yes` : command;
          // The command exits with 1 for the errors that are left.
          await run(command.includes(' doctor ') ? `${line} || true` : line, input?.());
        }
      }

      const left = (await find()).filter(({ severity }) => severity === 'error');
      expect(left, JSON.stringify(left, null, 1)).to.deep.equal([]);
      await cleanUp?.();
    });
  }

  it('every command of the table of errors was run as it is printed, here or in the test that is named', () => {
    const expected = Object.entries(errors).flatMap(([check, commands]) =>
      commands
        .filter(
          command =>
            !(elsewhere[check as Check] as readonly string[] | undefined)?.includes(command),
        )
        .map(command => `${check}: ${command}`),
    );

    expect([...usedCommands].sort()).to.include.members(expected.sort());
  });
});
