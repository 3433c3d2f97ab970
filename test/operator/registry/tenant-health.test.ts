import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { listPlaces } from '../../../src/operator/databases/verbs/list-places.ts';
import { readFindings } from '../../../src/operator/doctor/read-findings.ts';
import { listTenants, type TenantWithHealth } from '../../../src/operator/registry/read-tenants.ts';
import { runCommand } from '../../support/run-command.ts';
import { useFolder } from '../../support/use.ts';
import { controlSql, useWorld } from '../../support/world.ts';
import { storeFindings } from './stored-findings.ts';

describe('health of tenants', () => {
  const world = useWorld();

  const run = (...args: string[]) => runCommand('scripts/backoffice.ts', args, world.environment);

  /** Both tenants, as `list` has them. */
  const read = async (): Promise<[acme: TenantWithHealth, globex: TenantWithHealth]> => {
    const [acme, globex] = await listTenants(world.installation);
    return [acme as TenantWithHealth, globex as TenantWithHealth];
  };

  beforeEach(() => storeFindings(world, []));

  const missing = {
    check: 'missing_database',
    tenant: 'acme',
    remedy: 'Restore it: bin/backoffice restore acme --lost',
  };

  /** The troubles that acme alone can have. */
  const troubles: readonly {
    readonly check: string;
    readonly health: string;
    readonly text: string;
    make(): Promise<unknown>;
    end(): Promise<unknown>;
  }[] = [
    {
      check: 'missing_database',
      health: 'unwell',
      text: 'database x is missing',
      make: () => storeFindings(world, [{ ...missing, problem: 'database x is missing' }]),
      end: () => storeFindings(world, []),
    },
    {
      check: 'feed_held',
      health: 'warning',
      text: 'changes wait',
      make: () =>
        storeFindings(world, [
          {
            check: 'feed_held',
            tenant: 'acme',
            severity: 'warning',
            problem: 'changes wait',
            remedy: 'Let it end',
          },
        ]),
      end: () => storeFindings(world, []),
    },
    {
      check: 'behind',
      health: 'unwell',
      text: 'the database is at 0000-older, this build needs',
      make: () =>
        controlSql(world, `update tenants set schema_version = '0000-older' where slug = 'acme'`),
      end: () =>
        controlSql(
          world,
          `update tenants t set schema_version = o.schema_version from tenants o
            where o.slug = 'globex' and t.slug = 'acme'`,
        ),
    },
    {
      check: 'migration_failed',
      health: 'unwell',
      text: 'the last migration failed, in run',
      make: () =>
        controlSql(
          world,
          `with run as (insert into migration_runs (head, requested_by, state)
                        values ('0001', 'jane@office', 'failed') returning id)
           insert into migration_outcomes (run_id, tenant_id, state, error)
           select run.id, t.id, 'failed', 'labels exists' from run, tenants t where slug = 'acme'`,
        ),
      end: () => controlSql(world, 'delete from migration_runs'),
    },
    {
      check: 'webhook_failing',
      health: 'warning',
      text: 'webhook 3 to hooks.example.com fails: its receiver answers 503 Service Unavailable; 4 messages wait',
      make: () =>
        controlSql(
          world,
          `insert into webhook_tenants (tenant_id, sealed_key, due_at, failing, failing_since, failing_webhook)
           select id, '', now() + interval '1 hour', 1, now() - interval '4 minutes',
                  '{"id": 3, "host": "hooks.example.com", "status": 503, "error": "status", "waiting": 4, "isMore": false}'
             from tenants where slug = 'acme'`,
        ),
      end: () => controlSql(world, 'delete from webhook_tenants'),
    },
    {
      check: 'archive_faulty',
      health: 'unwell',
      text: 'the newest archive is faulty: it ends too early',
      make: async () => {
        await controlSql(world, `update installation set backup_target = 'folder /backup'`);
        await controlSql(
          world,
          `insert into archives (target, name, tenant_guid, archived_at, state, recipients, bytes, sha256, unpacked_bytes, fault)
           select 'folder /backup', 'a', guid, now(), 'complete', '0a1b2c3d', 1, '', 1, 'it ends too early'
             from tenants where slug = 'acme'`,
        );
      },
      end: () => controlSql(world, 'delete from archives'),
    },
  ];

  for (const { check, health, text, make, end } of troubles) {
    it(`a tenant with ${check} is ${health} for that reason while it stays active, and another tenant is well`, async () => {
      await make();
      try {
        const [acme, globex] = await read();

        expect(acme.status).to.equal('active');
        expect(acme.health).to.equal(health);
        expect(acme.reasons.map(reason => reason.check)).to.deep.equal([check]);
        expect(acme.reasons[0]?.text).to.include(text);
        expect(acme.reasons[0]?.remedy).to.not.equal('');
        expect(globex.health).to.equal('well');
        expect(
          (await listTenants(world.installation, { health })).map(({ slug }) => slug),
        ).to.deep.equal(['acme']);
      } finally {
        await end();
      }
      expect((await read())[0].health).to.equal('well');
    });
  }

  it('a server that does not respond makes each of its tenants unwell', async () => {
    await storeFindings(world, [
      { check: 'server_unreachable', tenant: null, problem: 'no answer', remedy: 'Wait' },
    ]);

    const healths = (await read()).map(({ health }) => health);

    expect(healths).to.deep.equal(['unwell', 'unwell']);
  });

  it('a tenant that doctor has not checked is never shown as healthy', async () => {
    await controlSql(world, `update doctor_reports set made_at = now() - interval '1 year'`);
    expect((await read()).map(({ health }) => health)).to.deep.equal(['unchecked', 'unchecked']);

    await controlSql(world, 'delete from doctor_reports');
    expect((await read()).map(({ health }) => health)).to.deep.equal(['unchecked', 'unchecked']);
  });

  it('list and show have the status of a tenant, its health and the reasons, as text and as JSON', async () => {
    await storeFindings(world, [{ ...missing, problem: 'database x is missing' }]);

    const listed = await run('list');
    const found: TenantWithHealth[] = JSON.parse(
      (await run('list', '--health', 'unwell', '--json')).stdout,
    );
    const shown = await run('show', 'acme');
    const document = JSON.parse((await run('show', 'acme', '--json')).stdout);

    expect(listed.stdout).to.match(/^acme .* active +unwell .* database x is missing$/m);
    expect(listed.stdout).to.match(/^globex .* active +well /m);
    expect(found.map(({ slug }) => slug)).to.deep.equal(['acme']);
    expect(shown.stdout)
      .to.match(/^health +unwell$/m)
      .and.match(
        /^error +database x is missing\. Restore it: bin\/backoffice restore acme --lost$/m,
      );
    expect(document).to.deep.include({
      status: 'active',
      health: 'unwell',
      reasons: found[0]?.reasons,
    });
    expect(document.checkedAt).to.match(/^\d{4}-\d\d-\d\dT/);
  });

  it('user find and status have the health of tenants beside their state, as text and as JSON', async () => {
    await storeFindings(world, [{ ...missing, problem: 'database x is missing' }]);
    const find = (...more: string[]) => run('user', 'find', world.acme.admin.email, ...more);

    const found = await find();
    const [user] = JSON.parse((await find('--json')).stdout);
    const status = await run('status');
    const document = JSON.parse((await run('status', '--json')).stdout);

    expect(found.stdout).to.match(/^acme +active +unwell +/m);
    expect(user).to.deep.include({ tenant: 'acme', status: 'active', health: 'unwell' });
    expect(user.reasons[0].text).to.equal('database x is missing');
    expect(status.stdout).to.match(
      /^Health +1 well, 0 unchecked, 0 warning, 1 unwell; doctor looked \d{4}-/m,
    );
    expect(document.health).to.deep.equal({ well: 1, unchecked: 0, warning: 0, unwell: 1 });
    expect(document.checkedAt).to.match(/^\d{4}-\d\d-\d\dT/);
  });

  it('a repair marks its finding as done until doctor checks again, and a repair of another tenant does not', async () => {
    await controlSql(world, `update signing_keys set status = 'disabled'`);
    try {
      await run('doctor');
      expect((await read()).map(({ health }) => health)).to.deep.equal(['unwell', 'unwell']);

      expect((await run('key', 'rotate', 'acme')).code).to.equal(0);

      const [acme, globex] = await read();
      expect(acme.health).to.equal('unchecked');
      expect(acme.reasons.map(({ check, severity }) => `${check} ${severity}`)).to.deep.equal([
        'missing_key done',
      ]);
      expect(globex.health).to.equal('unwell');
      expect((await run('show', 'acme')).stdout).to.include('(done since, not checked again)');
    } finally {
      await run('key', 'rotate', 'globex');
    }
    await run('doctor');
    expect(
      (await read()).flatMap(({ reasons }) => reasons).map(({ check }) => check),
    ).to.not.include('missing_key');
  });

  it('a finding and its repair follow a tenant to its later slug, and not to another tenant that gets the former one', async () => {
    const findings = async () => (await readFindings(world.installation))?.findings ?? [];
    await storeFindings(world, [
      { ...missing, problem: 'database x is missing', remedy: 'Serve: bin/backoffice resume acme' },
    ]);
    await run('edit', 'acme', '--slug', 'acme-later', '--alias-days', '0');
    try {
      await controlSql(world, `delete from tenant_slugs where slug = 'acme'`);
      await run('edit', 'globex', '--slug', 'acme');
      await run('resume', 'acme');

      const [globex, acme] = await read();
      expect(acme?.health).to.equal('unwell');
      expect(globex?.health).to.equal('well');
      const [open] = await findings();
      expect(open?.tenant).to.equal('acme-later');
      expect(open?.isDone).to.equal(false);

      expect((await run('resume', 'acme-later')).code).to.equal(0);

      const [, repaired] = await read();
      expect(repaired?.health).to.equal('unchecked');
      expect((await findings())[0]?.isDone).to.equal(true);
    } finally {
      await run('edit', 'acme', '--slug', 'globex');
      await controlSql(world, `delete from tenant_slugs where slug = 'acme'`);
      await run('edit', 'acme-later', '--slug', 'acme', '--alias-days', '0');
    }
  });

  it('each switch of a tenant is listed with the database and the server before it', async () => {
    await controlSql(
      world,
      `insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin, kept_by, current_during)
       select id, server_id, 'kept_before_test', role_name, 'kept', 'the template', 'move',
              tstzmultirange(tstzrange(now() - interval '2 days', now() - interval '1 day'))
         from tenants where slug = 'acme'`,
    );
    await controlSql(
      world,
      `update tenant_databases set current_since = now() where database_name = '${world.acme.database}'`,
    );
    try {
      const places = await listPlaces(world.installation, world.acme.id);

      expect(places.map(({ database }) => database)).to.deep.equal([
        'kept_before_test',
        world.acme.database,
      ]);
      expect(places[1]?.before).to.deep.equal({ database: 'kept_before_test', server: 'default' });
    } finally {
      await controlSql(
        world,
        `delete from tenant_databases where database_name = 'kept_before_test'`,
      );
    }
  });
});

describe('history of tenants', () => {
  const world = useWorld();
  const folder = useFolder();

  const run = (...args: string[]) => runCommand('scripts/backoffice.ts', args, world.environment);

  it('the history of each tenant begins with how it was made, by whom and why, also from a folder and as a clone', async () => {
    const manifests = join(folder, 'manifests');
    await mkdir(manifests);
    for (const slug of ['initech', 'umbrella']) {
      const manifest = {
        slug,
        name: slug,
        appId: slug,
        features: [],
        packs: [],
        admin: { email: `admin@${slug}.test`, firstName: 'A', lastName: 'B' },
      };
      await writeFile(join(manifests, `${slug}.json`), JSON.stringify(manifest));
    }
    expect((await run('provision', '--file', manifests, '--reason', 'the pilot')).code).to.equal(0);
    expect((await run('provision', '--file', manifests, '--reason', 'once more')).code).to.equal(0);
    expect((await run('clone', 'acme', 'acme-copy', '--reason', 'a trial')).code).to.equal(0);

    const logOf = async (slug: string) =>
      JSON.parse((await run('logs', slug, '--json')).stdout).items;

    for (const slug of ['initech', 'umbrella']) {
      const rows = await logOf(slug);
      expect(rows).to.have.length(1);
      expect(rows[0]).to.deep.include({ command: 'provision', reason: 'the pilot', state: 'done' });
      expect(rows[0].arguments).to.deep.equal({ file: manifests });
    }
    const [clone] = await logOf('acme-copy');
    expect(clone).to.deep.include({ command: 'clone', reason: 'a trial' });
    expect(clone.arguments).to.deep.equal({ newSlug: 'acme-copy', from: 'acme' });
  });
});
