import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { runScript } from '../../support/command-line.ts';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';

interface Found {
  check: string;
  tenant: string | null;
  problem: string;
  remedy: string;
  fixed: boolean;
}

describe('doctor', () => {
  let server: DedicatedServer;
  let acme: string;
  let globex: string;
  let head: string;

  before(async () => {
    server = await createDedicatedServer();
    const { tenant } = await server.provision('acme');
    acme = tenant.databaseName;
    head = tenant.schemaVersion ?? '';
    globex = (await server.provision('globex')).tenant.databaseName;
  });
  after(() => server.close());

  const doctor = (...args: string[]) => runScript('scripts/tenant.ts', ['doctor', ...args], server.environment);

  const look = async (fix = false): Promise<Found[]> => (await diagnose(server.installation, { fix })).findings;
  const inShort = (findings: Found[]) => findings.map(({ check, tenant }) => [check, tenant]);

  afterEach('finds nothing when the fault is mended', async () => {
    expect(await look()).to.deep.equal([]);
  });

  it('ends with 0 when nothing is wrong', async () => {
    const { code, stdout, stderr } = await doctor();
    expect({ code, stdout, stderr }).to.deep.equal({
      code: 0,
      stdout: 'Nothing is wrong with 2 tenants on 1 server.\n',
      stderr: '',
    });
  });

  it('ends with 1 when something is, names it, says what to do, and shows no secret', async () => {
    await server.sql(`drop owned by "${acme}"; drop role "${acme}"`);
    const [text, json] = await Promise.all([doctor(), doctor('--json')]);
    expect([text.code, json.code, json.stderr]).to.deep.equal([1, 1, '']);
    expect(text.stdout).to.include(`acme: the login role ${acme} is missing`).and.to.include('doctor --fix does it');
    const { healthy, servers, tenants, findings } = JSON.parse(json.stdout);
    expect({ healthy, servers, tenants }).to.deep.equal({ healthy: false, servers: 1, tenants: 2 });
    expect(inShort(findings)).to.deep.equal([
      ['missing_role', 'acme'],
      ['login_fails', 'acme'],
    ]);
    expect(Object.keys(findings[0])).to.deep.equal(['check', 'server', 'tenant', 'problem', 'remedy', 'fixed']);
    expect(text.stdout + json.stdout).not.to.match(/create role|password '/);
    const fixed = await doctor('--fix', '--json');
    expect(JSON.parse(fixed.stdout).findings[0]).to.deep.include({ check: 'missing_role', fixed: true });
  });

  /** What an intruder, or a mistake, does; what is found, and what undoes it when `--fix` does not. */
  const faults: [
    string,
    { break: () => Promise<unknown>; found: [string, string | null][]; names: RegExp; undo?: () => Promise<unknown> },
  ][] = [
    [
      "a right to connect to another tenant's database",
      {
        break: () => server.sql(`grant connect on database "${globex}" to "${acme}"`),
        found: [['excess_rights', 'acme']],
        names: /rights on the database office_globex/,
      },
    ],
    [
      'a right to connect to the control database',
      {
        break: () => server.sql(`grant connect on database office to "${acme}"`),
        found: [['excess_rights', 'acme']],
        names: /rights on the database office$/,
      },
    ],
    [
      'a right to make temporary tables',
      {
        break: () => server.sql(`grant temporary on database "${acme}" to "${acme}"`),
        found: [['excess_rights', 'acme']],
        names: /TEMPORARY on office_acme/,
      },
    ],
    [
      'a role that is a member of another',
      {
        break: () => server.sql(`grant pg_read_all_data to "${acme}"`),
        found: [['excess_rights', 'acme']],
        names: /member of pg_read_all_data/,
      },
    ],
    [
      'a role that is a superuser and may create databases',
      {
        break: () => server.sql(`alter role "${acme}" superuser createdb`),
        found: [['excess_rights', 'acme']],
        names: /is superuser, createdb/,
      },
    ],
    [
      'a role that owns something',
      {
        break: () => server.sql(`create schema mine authorization "${acme}"`, acme),
        found: [['excess_rights', 'acme']],
        names: /owns something in office_acme/,
        undo: () => server.sql('drop schema mine', acme),
      },
    ],
    [
      'a login that has what tenants have',
      {
        break: () => server.sql('create role intruder login; grant office_tenant to intruder'),
        found: [['excess_rights', null]],
        names: /intruder has what tenants have/,
        undo: () => server.sql('drop role intruder'),
      },
    ],
    [
      'rights of all tenants on a database',
      {
        break: () => server.sql(`grant connect on database "${globex}" to office_tenant`),
        found: [['excess_rights', null]],
        names: /all tenants have rights on the database office_globex/,
      },
    ],
    [
      'a tenant database that everybody may enter',
      {
        break: () => server.sql(`grant connect on database "${acme}" to public`),
        found: [['public_access', 'acme']],
        names: /CONNECT on office_acme/,
      },
    ],
    [
      'a control database that everybody may enter',
      {
        break: () => server.sql('grant connect on database office to public'),
        found: [['public_access', null]],
        names: /CONNECT on office$/,
        undo: () => server.sql('revoke all on database office from public'),
      },
    ],
    [
      'a tenant that may rewrite its audit log',
      {
        break: () => server.sql(`grant update, delete on audit_log to "${acme}"`, acme),
        found: [
          ['excess_rights', 'acme'],
          ['schema_drift', 'acme'],
        ],
        names: /has DELETE, UPDATE on audit_log/,
      },
    ],
    [
      'tenants that may empty the activity log',
      {
        break: () => server.sql('grant truncate on activities to office_tenant', acme),
        found: [
          ['excess_rights', 'acme'],
          ['schema_drift', 'acme'],
        ],
        names: /office_tenant has TRUNCATE on activities/,
      },
    ],
    [
      'a role that may not log in',
      {
        break: () => server.sql(`alter role "${acme}" nologin`),
        found: [
          ['missing_rights', 'acme'],
          ['login_fails', 'acme'],
        ],
        names: /may not log in/,
      },
    ],
    [
      'a role that may not connect, and is in no group',
      {
        break: () =>
          server.sql(`revoke connect on database "${acme}" from "${acme}"; revoke office_tenant from "${acme}"`),
        found: [
          ['missing_rights', 'acme'],
          ['missing_rights', 'acme'],
          ['login_fails', 'acme'],
        ],
        names: /not in the group/,
      },
    ],
    [
      'a role with another password',
      {
        break: () => server.sql(`alter role "${acme}" password 'another'`),
        found: [['login_fails', 'acme']],
        names: /password authentication failed/,
        undo: async () => {
          const secret = await passwordOf('acme');
          await server.sql(`alter role "${acme}" password '${secret}'`);
        },
      },
    ],
    [
      'a database that takes no connections',
      {
        break: () => server.sql(`alter database "${acme}" allow_connections false`),
        found: [['closed_database', 'acme']],
        names: /takes no connections/,
        undo: () => server.sql(`alter database "${acme}" allow_connections true`),
      },
    ],
    [
      'a database that is gone',
      {
        break: () => server.sql(`alter database "${acme}" rename to elsewhere`),
        found: [
          ['missing_database', 'acme'],
          ['excess_rights', 'acme'],
        ],
        names: /office_acme_\d+ is missing/,
        undo: () => server.sql(`alter database elsewhere rename to "${acme}"`),
      },
    ],
    [
      'a database that is half dropped',
      {
        break: () => server.sql(`update pg_database set datconnlimit = -2 where datname = '${acme}'`),
        found: [['half_dropped_database', 'acme']],
        names: /half dropped/,
        undo: () => server.sql(`update pg_database set datconnlimit = -1 where datname = '${acme}'`),
      },
    ],
    [
      'a database and a role that no tenant has',
      {
        break: () =>
          server
            .sql('create role "office_lost_77" login')
            .then(() => server.sql('create database "office_lost_77"'))
            .then(() => server.sql('revoke all on database "office_lost_77" from public')),
        found: [
          ['orphan_database', null],
          ['orphan_role', null],
        ],
        names: /no tenant has the database office_lost_77/,
        undo: () => server.sql('drop database office_lost_77').then(() => server.sql('drop role office_lost_77')),
      },
    ],
    [
      'a half dropped database that no tenant has',
      {
        break: () =>
          server
            .sql('create database "office_lost_78"')
            .then(() => server.sql(`update pg_database set datconnlimit = -2 where datname = 'office_lost_78'`)),
        found: [['half_dropped_database', null]],
        names: /office_lost_78 is half dropped/,
      },
    ],
    [
      'a warm database that is not in the books',
      {
        break: () =>
          server
            .sql('create database "office_warm_79" allow_connections false')
            .then(() => server.sql('create role office_warm_79; create role office_warm_80')),
        found: [
          ['warm_leftover', null],
          ['warm_leftover', null],
        ],
        names: /office_warm_79 waits/,
      },
    ],
    [
      'a row that is half made',
      {
        break: () => server.control(`update tenants set status = 'provisioning' where slug = 'acme'`),
        found: [['stuck_provisioning', 'acme']],
        names: /half made/,
        undo: () => server.control(`update tenants set status = 'active' where slug = 'acme'`),
      },
    ],
    [
      'a tenant without an active key',
      {
        break: () =>
          server.control(
            `update signing_keys set status = 'retiring' where tenant_id = (select id from tenants where slug = 'acme')`,
          ),
        found: [['missing_key', 'acme']],
        names: /no active signing key/,
        undo: () =>
          server.control(
            `update signing_keys set status = 'active' where tenant_id = (select id from tenants where slug = 'acme')`,
          ),
      },
    ],
    [
      'secrets of another tenant',
      {
        break: async () => {
          await server.control(
            `create table kept as select * from signing_keys; create table kept_tenants as select * from tenants`,
          );
          await server.control(
            `update signing_keys set secret = (select secret from kept where kid <> signing_keys.kid limit 1) where tenant_id = (select id from tenants where slug = 'acme')`,
          );
          await server.control(
            `update tenants set role_password = (select role_password from kept_tenants where slug = 'globex') where slug = 'acme'`,
          );
        },
        found: [
          ['secret_does_not_open', 'acme'],
          ['secret_does_not_open', 'acme'],
        ],
        names: /signing key \S+ does not open/,
        undo: async () => {
          await server.control(
            'update signing_keys set secret = kept.secret from kept where kept.kid = signing_keys.kid',
          );
          await server.control(
            'update tenants set role_password = k.role_password from kept_tenants k where k.id = tenants.id',
          );
          await server.control('drop table kept, kept_tenants');
        },
      },
    ],
    [
      'a database of another tenant',
      {
        break: () => server.sql(`update tenant_identity set guid = gen_random_uuid()`, acme),
        found: [['wrong_identity', 'acme']],
        names: /belongs to the tenant with the guid/,
        undo: async () => {
          const [row] = await server.control<{ guid: string }>(`select guid from tenants where slug = 'acme'`);
          await server.sql(`update tenant_identity set guid = '${row?.guid}'`, acme);
        },
      },
    ],
    [
      'books with another version',
      {
        break: () => server.control(`update tenants set schema_version = '0001-foundation' where slug = 'acme'`),
        found: [['version_differs', 'acme']],
        names: /the books have 0001-foundation/,
        undo: () => server.control(`update tenants set schema_version = '${head}' where slug = 'acme'`),
      },
    ],
    [
      'an identity with another version than the migrations have',
      {
        break: () =>
          server.sql(
            `set session_replication_role = replica; update tenant_identity set schema_version = '0001-foundation'`,
            acme,
          ),
        found: [['version_differs', 'acme']],
        names: /its identity says 0001-foundation/,
      },
    ],
    [
      'a schema that was changed by hand',
      {
        break: () => server.sql('create index by_hand on entity_statuses (weighting)', acme),
        found: [['schema_drift', 'acme']],
        names: /index by_hand should not be there/,
        undo: () => server.sql('drop index by_hand', acme),
      },
    ],
  ];

  for (const [fault, { break: breakIt, found, names, undo }] of faults) {
    it(`finds ${fault}${undo ? '' : ', and --fix mends it'}`, async () => {
      await breakIt();
      const findings = await look();
      try {
        expect(inShort(findings), JSON.stringify(findings, null, 1)).to.deep.equal(found);
        expect(
          findings.some(({ problem }) => names.test(problem)),
          JSON.stringify(findings),
        ).to.equal(true);
        for (const { remedy, fixed } of findings) expect([remedy.length > 5, fixed]).to.deep.equal([true, false]);
        if (!undo) {
          const [first] = await look(true);
          expect(first?.fixed, first?.remedy).to.equal(true);
        }
      } finally {
        await undo?.();
      }
    });
  }

  it('goes on past a server that is down', async () => {
    const { secrets } = server.installation;
    const url = secrets.seal('postgresql://nobody@127.0.0.1:1/postgres', 'server_url:far').toString('hex');
    await server.control(
      `insert into servers (name, prefix, admin_url) values ('far', 'office', decode('${url}', 'hex'))`,
    );
    await server.sql(`alter role "${acme}" createdb`);
    const findings = await look(true);
    expect(inShort(findings)).to.deep.equal([
      ['excess_rights', 'acme'],
      ['server_unreachable', null],
    ]);
    await server.control(`delete from servers where name = 'far'`);
  });

  it('under another master key says so of every secret, and mends nothing', async () => {
    const environment = { ...server.environment, MASTER_KEY: randomBytes(32).toString('base64') };
    const { code, stdout } = await runScript('scripts/tenant.ts', ['doctor', '--fix', '--json'], environment);
    expect(code).to.equal(1);
    const { findings } = JSON.parse(stdout) as { findings: Found[] };
    expect(new Set(findings.map(({ check, fixed }) => `${check} ${fixed}`))).to.deep.equal(
      new Set(['secret_does_not_open false']),
    );
    expect(findings).to.have.length(4);
  });

  async function passwordOf(slug: string): Promise<string> {
    const [row] = await server.control<{ guid: string; role_password: Buffer }>(
      `select guid, role_password from tenants where slug = '${slug}'`,
    );
    return server.installation.secrets
      .open(row?.role_password ?? Buffer.alloc(0), `role_password:${row?.guid}`)
      .toString();
  }
});
