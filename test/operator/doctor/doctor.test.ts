import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { SecretBox } from '../../../src/control/secret-box.ts';
import { closedStamp } from '../../../src/operator/databases/store/database-stamp.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

interface ReportedFinding {
  check: string;
  tenant: string | null;
  problem: string;
  remedy: string;
  fixed: boolean;
}

interface Fault {
  /** Causes the fault. */
  inject: () => Promise<unknown>;
  /** The checks and tenants of the findings that doctor must return. */
  findings: [string, string | null][];
  /** Each matches the problem of one of them. */
  problems: RegExp[];
  /** Removes the fault; absent when `--fix` must remove it. */
  restore?: () => Promise<unknown>;
}

describe('doctor', () => {
  const server = use(createDedicatedServer);
  let acme: string;
  let globex: string;
  let head: string;

  before(async () => {
    const { tenant } = await server.provision('acme');
    acme = tenant.databaseName;
    head = tenant.schemaVersion ?? '';
    globex = (await server.provision('globex')).tenant.databaseName;
  });

  const doctor = (...args: string[]) =>
    runCommand('scripts/tenant.ts', ['doctor', ...args], server.environment);

  const findFaults = async (fix = false): Promise<ReportedFinding[]> =>
    (await diagnose(server.installation, { fix })).findings;
  const checksOf = (findings: ReportedFinding[]) =>
    findings.map(({ check, tenant }) => [check, tenant]);

  it('doctor exits with 0 when nothing is wrong', async () => {
    const { code, stdout, stderr } = await doctor();
    expect({ code, stdout, stderr }).to.deep.equal({
      code: 0,
      stdout: 'Checked 2 tenants on 1 server: nothing is wrong.\n',
      stderr: '',
    });
  });

  it('doctor --control checks the control database and the catalogs of servers, and opens no tenant database', async () => {
    await server.sql('create table stray (id integer)', acme);
    await server.sql(`grant connect on database "${globex}" to public`);

    const { stdout } = await doctor('--control', '--json');

    await server.sql(`revoke connect on database "${globex}" from public`);
    await server.sql('drop table stray', acme);
    const { findings } = JSON.parse(stdout);
    expect(checksOf(findings)).to.deep.equal([['public_access', 'globex']]);
  });

  it('doctor exits with 1 for a problem, prints the problem and its remedy, and shows no secret', async () => {
    await server.sql(`drop owned by "${acme}"; drop role "${acme}"`);
    const [text, json] = await Promise.all([doctor(), doctor('--json')]);

    expect(text.code).to.equal(1);
    expect(json.code).to.equal(1);
    expect(json.stderr).to.equal('');
    expect(text.stdout)
      .to.include(`acme: login role ${acme} is missing`)
      .and.to.match(/: bin\/backoffice doctor --fix [0-9a-f]{8}$/m);

    const { healthy, servers, tenants, findings } = JSON.parse(json.stdout);
    expect({ healthy, servers, tenants }).to.deep.equal({ healthy: false, servers: 1, tenants: 2 });
    expect(checksOf(findings)).to.deep.equal([
      ['missing_role', 'acme'],
      ['login_fails', 'acme'],
    ]);

    expect(Object.keys(findings[0])).to.have.members([
      'id',
      'check',
      'server',
      'tenant',
      'severity',
      'problem',
      'remedy',
      'repair',
      'fixed',
    ]);
    expect(text.stdout + json.stdout).not.to.match(/create role|password '/);

    const fixed = await doctor('--fix', '--json');
    expect(fixed.code).to.equal(0);
    const repaired = JSON.parse(fixed.stdout).findings.map(({ check, fixed }: ReportedFinding) => [
      check,
      fixed,
    ]);
    expect(repaired).to.deep.equal([
      ['missing_role', true],
      ['login_fails', true], // checked again after the repair of the role
    ]);
  });

  it('doctor exits with 0 when there are only warnings, and prints them', async () => {
    await server.sql('create database "office_template_0123456789ab" allow_connections false');
    const { code, stdout } = await doctor();
    expect([code, stdout]).to.satisfy(
      ([status, text]: [number, string]) =>
        status === 0 && /default: warning: .* is the template of another/.test(text),
    );
    expect((await doctor('--fix')).stdout).to.match(/0 open problems, 1 fixed/);
  });

  it('no remedy has a placeholder, or a full stop after a command or a statement', async () => {
    const files = await readdir(new URL('../../../src/operator/doctor/', import.meta.url));
    for (const file of files) {
      const text = await readFile(
        new URL(`../../../src/operator/doctor/${file}`, import.meta.url),
        'utf8',
      );
      expect(text, file).to.not.match(/npm run -s [^`'\n]*\.[`'],|;\.|…/);
    }
  });

  const ofAcme = `(select id from tenants where slug = 'acme')`;

  /** Records a database in the control database, of the tenant with that id. */
  const record = (name: string, tenant: string, state: string, keepUntil = 'now()') =>
    server.control(
      `insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin, keep_until)
       select ${tenant}, id, '${name}', '${name}', '${state}', 'template', ${keepUntil} from servers`,
    );

  /** Faults that an intruder or a mistake may cause, with their titles. */
  const faults: [string, Fault][] = [
    [
      'rights of login roles on databases, large objects and other roles, and the attributes superuser and createdb',
      {
        inject: async () => {
          await server.sql(`grant connect on database "${globex}", office to "${acme}";
                            grant temporary on database "${acme}" to "${acme}"; grant pg_read_all_data to "${acme}";
                            alter role "${globex}" superuser createdb`);
          await server.sql(
            'grant execute on function lo_create(oid), lo_put(oid, bigint, bytea) to public',
            acme,
          );
        },
        findings: [...Array(5).fill(['excess_rights', 'acme']), ['excess_rights', 'globex']],
        problems: [
          /has CONNECT on database office_tenant_/,
          /has CONNECT on database office$/,
          /TEMPORARY on database office_tenant_/,
          /member of pg_read_all_data/,
          /PUBLIC may store large objects: it may execute lo_create\(oid\), lo_put\(oid, bigint, bytea\)$/,
          /is superuser, createdb/,
        ],
      },
    ],
    [
      'databases of tenants in the order of a language, and with its small letters',
      {
        inject: async () => {
          await server.sql(
            `update pg_database set datlocprovider = 'i', datlocale = 'en-US' where datname = '${acme}'`,
          );
          await server.sql(
            `update pg_database set datlocprovider = 'c', datlocale = null where datname = '${globex}'`,
          );
        },
        findings: [
          ['text_order_differs', 'acme'],
          ['text_order_differs', 'globex'],
        ],
        problems: [
          /office_tenant_\w+ orders texts by a language \(.*apple, Aruba.*\), and not by code point/,
          /office_tenant_\w+ knows other pairs of capital and small letters than Unicode/,
        ],
        restore: () =>
          server.sql(
            `update pg_database set datlocprovider = 'b', datlocale = 'C.UTF-8', datcollversion = '1'
              where datname in ('${acme}', '${globex}')`,
          ),
      },
    ],
    [
      'an identity with another version than the migrations',
      {
        inject: async () => {
          await server.sql(
            `set session_replication_role = replica; update tenant_identity set schema_version = '0000-before'`,
            globex,
          );
        },
        findings: [['version_differs', 'globex']],
        problems: [/the identity in the database has 0000-before/],
      },
    ],
    [
      'privileges of the group of all tenants and of PUBLIC on tenant databases, UPDATE and DELETE on the audit log, and TRUNCATE of all tenants on the activities',
      {
        inject: async () => {
          await server.sql(`grant connect on database "${globex}" to office_tenant;
                            grant connect on database "${acme}" to public`);
          await server.sql(
            `grant update, delete on audit_log to "${acme}"; grant truncate on activities to office_tenant`,
            acme,
          );
        },
        findings: [
          ['excess_rights', null],
          ['public_access', 'acme'],
          ['excess_rights', 'acme'],
          ['excess_rights', 'acme'],
          ['schema_drift', 'acme'],
          ['schema_drift', 'acme'],
        ],
        problems: [
          /all tenants have privileges on database office_tenant_/,
          /CONNECT on database office_tenant_/,
          /has DELETE, UPDATE on audit_log/,
          /office_tenant has TRUNCATE on activities/,
        ],
      },
    ],
    [
      'a half dropped database that no tenant has, and one of a replaced command, whose tenant was purged meanwhile',
      {
        inject: async () => {
          const [row] = await server.control<{ guid: string }>(
            `insert into purged_tenants (id, guid, slug, name, database_name, created_at)
             values (7910, gen_random_uuid(), 'gone', 'gone', 'office_tenant_7910', now()) returning guid`,
          );
          await server.sql(`create database "office_tenant_7911" template "${acme}"`);
          await server.sql(`revoke all on database "office_tenant_7911" from public;
                            create role "office_tenant_7911" nologin; grant office_tenant to "office_tenant_7911";
                            grant connect on database "office_tenant_7911" to "office_tenant_7911"`);
          await server.sql(
            `update tenant_identity set guid = '${closedStamp(row?.guid ?? '')}'`,
            'office_tenant_7911',
          );
          await server.sql('create database "office_lost_78"');
          await server.sql(
            `update pg_database set datconnlimit = -2 where datname = 'office_lost_78'`,
          );
        },
        findings: [
          ['half_dropped_database', null],
          ['orphan_database', null],
        ],
        problems: [
          /office_lost_78 is half dropped/,
          /a command has left database office_tenant_7911, whose tenant was purged meanwhile/,
        ],
      },
    ],
    [
      'a database of a drill that has ended early',
      {
        inject: () => server.sql('create database office_drill_0123456789ab'),
        findings: [['leftover_database', null]],
        problems: [/office_drill_0123456789ab is of a drill that has ended early/],
      },
    ],
    [
      'a login role without CONNECT and without its group, and one with another password',
      {
        inject: () =>
          server.sql(`revoke connect on database "${acme}" from "${acme}"; revoke office_tenant from "${acme}";
                      alter role "${globex}" password 'another'`),
        findings: [
          ['missing_rights', 'acme'],
          ['missing_rights', 'acme'],
          ['login_fails', 'acme'],
          ['login_fails', 'globex'],
        ],
        problems: [/not a member of the group/, /password authentication failed/],
      },
    ],
    [
      'a login role that owns a schema, a foreign login in the group of all tenants, PUBLIC on the control database, and a schema that was changed by hand',
      {
        inject: async () => {
          await server.sql(`create schema mine authorization "${acme}"`, acme);
          await server.sql('create role intruder login; grant office_tenant to intruder');
          await server.sql('grant connect on database office to public');
          await server.sql('create index by_hand on entity_statuses (weighting)', globex);
        },
        findings: [
          ['excess_rights', 'acme'],
          ['excess_rights', null],
          ['public_access', null],
          ['schema_drift', 'globex'],
        ],
        problems: [
          /owns objects in database office_tenant_/,
          /intruder has the privileges of tenants/,
          /CONNECT on database office$/,
          /index by_hand is not part of it/,
        ],
        restore: async () => {
          await server.sql('drop schema mine', acme);
          await server.sql('drop role intruder; revoke all on database office from public');
          await server.sql('drop index by_hand', globex);
        },
      },
    ],
    [
      'a closed database of a tenant without a fence, and a login role that may not log in',
      {
        inject: async () => {
          const [row] = await server.control<{ guid: string }>(
            `select guid from tenants where slug = 'acme'`,
          );
          await server.sql(
            `update tenant_identity set guid = '${closedStamp(row?.guid ?? '')}'`,
            acme,
          );
          await server.sql(`alter role "${globex}" nologin`);
        },
        findings: [
          ['unfinished_switch', 'acme'],
          ['missing_rights', 'globex'],
          ['login_fails', 'globex'],
        ],
        problems: [
          /the database is closed, as by a move or a swap after the time of the control database/,
          /may not log in/,
        ],
        restore: async () => {
          for (const slug of ['acme', 'globex']) {
            await succeed(server.environment, 'tenant', ['databases', 'prune', slug]);
          }
        },
      },
    ],
    [
      'a database that accepts no connections, and a renamed one',
      {
        inject: () =>
          server.sql(
            `alter database "${acme}" allow_connections false; alter database "${globex}" rename to elsewhere`,
          ),
        findings: [
          ['closed_database', 'acme'],
          ['renamed_database', 'globex'],
        ],
        problems: [
          /accepts no connections/,
          /office_tenant_\w+ is missing; the data of globex is in database elsewhere/,
        ],
        restore: () =>
          server.sql(
            `alter database "${acme}" allow_connections true; alter database elsewhere rename to "${globex}"`,
          ),
      },
    ],
    [
      'a missing database with a closed one that may be it, and a half dropped one',
      {
        inject: () =>
          server.sql(`alter database "${acme}" rename to elsewhere; alter database elsewhere allow_connections false;
                      update pg_database set datconnlimit = -2 where datname = '${globex}'`),
        findings: [
          ['missing_database', 'acme'],
          ['excess_rights', 'acme'],
          ['half_dropped_database', 'globex'],
        ],
        problems: [/office_tenant_\w+ is missing/, /half dropped/],
        restore: () =>
          server.sql(`alter database elsewhere rename to "${acme}"; alter database "${acme}" allow_connections true;
                      update pg_database set datconnlimit = -1 where datname = '${globex}'`),
      },
    ],
    [
      'a copy of a tenant database that its role may connect to, and databases and roles that no tenant has, and that no record names',
      {
        inject: async () => {
          await server.sql(`create role "office_lost_77" login; create role office_tenant_7900;
                            create role office_tenant_7901`);
          await server.sql(`create database "office_copy_81" template "${acme}"`);
          await server.sql('create database "office_lost_77"');
          await server.sql(`revoke all on database "office_copy_81", "office_lost_77" from public;
                            grant connect on database "office_copy_81" to "${acme}"`);
          await server.sql('create database "office_tenant_7900" allow_connections false');
        },
        findings: [
          ['excess_rights', 'acme'],
          ['copied_database', null],
          ...Array(2).fill(['orphan_database', null]),
          ...Array(3).fill(['orphan_role', null]),
        ],
        problems: [
          /office_copy_81 has the data of acme, which default serves from database office_tenant_/,
          /no tenant has database office_lost_77/,
          /no tenant has database office_tenant_7900/,
        ],
        restore: async () => {
          for (const name of ['office_copy_81', 'office_lost_77', 'office_tenant_7900']) {
            await server.sql(`drop database ${name}`);
          }
          await server.sql('drop role office_lost_77, office_tenant_7900, office_tenant_7901');
        },
      },
    ],
    [
      'databases that were not completed, not dropped, kept too long, or lost by their server, and a fence that no process works on',
      {
        inject: async () => {
          await server.sql('create database "office_tenant_7905" allow_connections false');
          await record('office_tenant_7903', ofAcme, 'reserved');
          await record('office_tenant_7904', ofAcme, 'condemned');
          await record('office_tenant_7905', ofAcme, 'kept');
          await record('office_tenant_7906', ofAcme, 'filled', 'null');
          await server.control(
            `insert into tenant_fences (tenant_guid, id, closed)
             select guid, gen_random_uuid(), true from tenants where slug = 'globex'`,
          );
        },
        findings: [
          ...Array(3).fill(['leftover_database', 'acme']),
          ['missing_database', 'acme'],
          ['unfinished_switch', 'globex'],
        ],
        problems: [
          /database office_tenant_7903 of acme is not complete, and no process continues/,
          /database office_tenant_7904 of acme is to be dropped, and no process does it/,
          /database office_tenant_7905 of acme is still there, and its time has passed/,
          /database office_tenant_7906, filled, is missing/,
          /a move or a swap of globex was begun, and no process continues, and its requests get 503 meanwhile/,
        ],
        restore: async () => {
          await server.control(
            `delete from tenant_databases where database_name ~ '^office_tenant_790[3-6]$'`,
          );
          await server.control('delete from tenant_fences');
          await server.sql('drop database office_tenant_7905');
        },
      },
    ],
    [
      'incomplete provisioning, a tenant without an active key, and a recorded version that its database does not have',
      {
        inject: () =>
          server.control(`update signing_keys set status = 'retiring' where tenant_id = ${ofAcme};
                          update tenants set schema_version = '0000-before' where slug = 'acme';
                          update tenants set status = 'provisioning' where slug = 'globex'`),
        findings: [
          ['missing_key', 'acme'],
          ['version_differs', 'acme'],
          ['stuck_provisioning', 'globex'],
        ],
        problems: [
          /no active signing key/,
          /the control database records 0000-before/,
          /not completely provisioned/,
        ],
        restore: () =>
          server.control(`update signing_keys set status = 'active' where tenant_id = ${ofAcme};
                          update tenants set schema_version = '${head}' where slug = 'acme';
                          update tenants set status = 'active' where slug = 'globex'`),
      },
    ],
    [
      'a signing key, an app and a password that were sealed for another tenant, and a database with the guid of another tenant inside',
      {
        inject: async () => {
          await server.control(
            `create table saved_keys as select * from signing_keys;
             create table saved_tenants as select * from tenants`,
          );
          await server.control(
            `update signing_keys set secret = (select secret from saved_keys where kid <> signing_keys.kid limit 1)
              where tenant_id = (select id from tenants where slug = 'acme')`,
          );
          await server.control(
            `update tenants set role_password = (select role_password from saved_tenants where slug = 'globex')
              where slug = 'acme'`,
          );
          await server.control(
            `insert into factors (tenant_id, user_id, kind, name, secret, confirmed_at)
             select u.tenant_id, u.id, 'totp', 'Phone', (select secret from saved_keys limit 1), now()
               from users u where u.tenant_id = ${ofAcme} limit 1`,
          );
          await server.sql('update tenant_identity set guid = gen_random_uuid()', globex);
        },
        findings: [
          ['secret_does_not_open', 'acme'],
          ['secret_does_not_open', 'acme'],
          ['secret_does_not_open', 'acme'],
          ['wrong_identity', 'globex'],
        ],
        problems: [
          /signing key \S+ cannot be decrypted/,
          /the authenticator app of \S+@\S+ cannot be decrypted/,
          /belongs to the tenant with guid/,
        ],
        restore: async () => {
          await server.control(
            `update signing_keys set secret = saved_keys.secret
               from saved_keys where saved_keys.kid = signing_keys.kid`,
          );
          await server.control(
            'update tenants set role_password = k.role_password from saved_tenants k where k.id = tenants.id',
          );
          await server.control('delete from factors; drop table saved_keys, saved_tenants');
          const [row] = await server.control<{ guid: string }>(
            `select guid from tenants where slug = 'globex'`,
          );
          await server.sql(`update tenant_identity set guid = '${row?.guid}'`, globex);
        },
      },
    ],
  ];

  for (const [fault, { inject, findings: expected, problems, restore }] of faults) {
    it(`doctor finds ${fault}${restore ? '' : ', and --fix repairs it'}`, async () => {
      await inject();
      const findings = await findFaults(restore === undefined);

      try {
        const report = JSON.stringify(findings, null, 1);
        expect(checksOf(findings), report).to.have.deep.members(expected);

        for (const pattern of problems) {
          expect(
            findings.some(({ problem }) => pattern.test(problem)),
            `${pattern} ${report}`,
          ).to.equal(true);
        }

        for (const { remedy, fixed } of findings) {
          expect(remedy.length, report).to.be.greaterThan(5);
          expect(fixed, report).to.equal(restore === undefined);
        }
      } finally {
        await restore?.();
      }
    });
  }

  it('doctor names a kept database that lets its tenant in, and one that accepts no connections, and --fix with their ids closes and opens them', async () => {
    const [open, closed] = ['office_tenant_7907', 'office_tenant_7908'];
    await server.sql(`create role ${open} login; create role ${closed}`);
    await server.sql(`create database ${open} template "${acme}"`);
    await server.sql(`create database ${closed} allow_connections false`);
    await server.sql(`revoke all on database ${open}, ${closed} from public`);
    await record(open, ofAcme, 'kept', 'null');
    await record(closed, ofAcme, 'kept', 'null');
    const stamps = () => server.sql<{ guid: string }>('select guid from tenant_identity', open);
    const [before] = await stamps();

    const found = await findFaults(true);
    const chosen = (await diagnose(server.installation)).findings.map(({ id }) => id);
    await diagnose(server.installation, { fix: true, chosen });

    expect(found.map(({ check, tenant, fixed }) => [check, tenant, fixed])).to.have.deep.members([
      ['open_database', 'acme', false],
      ['closed_database', 'acme', false],
    ]);
    expect(found.map(({ problem }) => problem)).to.have.members([
      `database ${open} of acme, kept, lets the tenant in, beside the database that serves it`,
      `database ${closed} of acme, kept, accepts no connections, so no command can use it`,
    ]);
    expect(await findFaults()).to.deep.equal([]);
    expect((await stamps())[0]?.guid).to.equal(closedStamp(before?.guid ?? ''));
    const roles = await server.sql<{ login: boolean }>(
      `select rolcanlogin as login from pg_roles where rolname = '${open}'`,
    );
    expect(roles).to.deep.equal([{ login: false }]);

    await server.control(
      `delete from tenant_databases where database_name in ('${open}', '${closed}')`,
    );
    for (const name of [open, closed]) await server.sql(`drop database ${name}`);
    await server.sql(`drop role ${open}, ${closed}`);
  });

  it('doctor checks and repairs the other servers when one is unreachable', async () => {
    const { secrets } = server.installation;
    const url = secrets
      .seal('postgresql://nobody@127.0.0.1:1/postgres', 'server_url:far')
      .toString('hex');
    await server.control(
      `insert into servers (name, prefix, admin_url) values ('far', 'office', decode('${url}', 'hex'))`,
    );
    await server.sql(`alter role "${acme}" createdb`);

    const findings = await findFaults(true);
    expect(checksOf(findings)).to.deep.equal([
      ['excess_rights', 'acme'],
      ['server_unreachable', null],
    ]);
    expect(findings[1]?.problem).to.equal('it cannot be used: nothing listens at its address');

    await server.control(`delete from servers where name = 'far'`);
  });

  it('doctor --fix with another master key is refused on the command line', async () => {
    const environment = { ...server.environment, MASTER_KEY: randomBytes(32).toString('base64') };
    const { code, stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--fix'],
      environment,
    );
    expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(stderr).to.match(/^MASTER_KEY is not the master key of this control database: .+\.\n$/);
  });

  it('doctor --fix with another master key reports every secret and repairs nothing', async () => {
    const secrets = new SecretBox(randomBytes(32));
    const { findings } = await diagnose({ ...server.installation, secrets }, { fix: true });
    expect(new Set(findings.map(({ check, fixed }) => `${check} ${fixed}`))).to.deep.equal(
      new Set(['secret_does_not_open false']),
    );
    expect(findings).to.have.length(4);
  });

  // A trace that a test leaves is found by the next test, which expects its own findings only,
  // and by this one.
  it('nothing is wrong after all repairs', async () => {
    expect(await findFaults()).to.deep.equal([]);
  });
});
