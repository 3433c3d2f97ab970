import { expect } from 'chai';
import pg from 'pg';
import { Server } from '../../../src/control/control-entities.ts';
import { type FillResult, fillPool, listPool } from '../../../src/operator/databases/warm-pool.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { startScript } from '../../support/command-line.ts';
import type { DedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';

/** A moment of a command: when it waits for this lock with this statement. */
interface Moment {
  name: string;
  lock: string;
  waiting: RegExp;
}

/** Moments of a provision that takes a warm database, with the state of its tenant then. */
export const provisionMoments: (Moment & { left: string })[] = [
  {
    name: 'before it writes its row',
    lock: 'lock table tenants in exclusive mode',
    waiting: /insert into "tenants"/i,
    left: 'none',
  },
  {
    name: 'before it takes its role',
    lock: 'lock table pg_authid in share mode',
    waiting: /alter role/,
    left: 'provisioning',
  },
  {
    name: 'before it opens',
    lock: 'lock table pg_database in share mode',
    waiting: /alter database/,
    left: 'provisioning',
  },
  {
    name: 'before it adds its users',
    lock: 'lock table users in exclusive mode',
    waiting: /delete from "?users"?/i,
    left: 'provisioning',
  },
];

export const fillMoments: Moment[] = [
  {
    name: 'before it creates its database',
    lock: 'lock table pg_database in share mode',
    waiting: /create database/,
  },
  { name: 'before it creates its role', lock: 'lock table pg_authid in share mode', waiting: /create role/ },
];

/**
 * Returns functions that check the warm pool of a server.
 * @param dedicated returns the server; called when one of the functions runs
 */
export function poolChecks(dedicated: () => DedicatedServer) {
  const fill = async (size: number): Promise<FillResult | undefined> => {
    const { installation } = dedicated();
    return (await fillPool(installation, await installation.control.em.fork().findAll(Server), size))[0];
  };
  const poolLines = async () =>
    (await listPool(dedicated().installation)).map(({ database, state }) => `${database} ${state}`);
  const findings = async (fix = false) =>
    (await diagnose(dedicated().installation, { fix })).findings.map(({ check, tenant: slug }) => [check, slug]);

  /** Returns the databases and roles of the service on the server, without templates and the control database. */
  async function listServer(): Promise<{ databases: string[]; roles: string[] }> {
    const names = async (text: string) => (await dedicated().sql<{ name: string }>(text)).map(({ name }) => name);
    return {
      databases: await names(
        `select datname as name from pg_database
          where datname ~ '^office_' and datname !~ '^office_template_' order by 1`,
      ),
      roles: await names(
        `select rolname as name from pg_roles where rolname ~ '^office_' and rolname <> 'office_tenant' order by 1`,
      ),
    };
  }

  /** Expects one database and one role for each tenant and each warm database, and no others. */
  async function expectNoOrphan(): Promise<void> {
    const known = await dedicated().control<{ name: string }>(
      `select database_name as name from tenants
       union all select database_name from tenant_databases where tenant_id is null`,
    );
    const names = known.map(({ name }) => name).sort();
    const { databases, roles } = await listServer();
    expect(databases.sort()).to.deep.equal(names);
    expect(roles.sort()).to.deep.equal(names);
    expect(await findings()).to.deep.equal([]);
  }

  async function hold(lock: string): Promise<pg.Client> {
    const holder = new pg.Client(lock.includes('pg_') ? dedicated().url : dedicated().environment.DATABASE_URL);
    await holder.connect();
    await holder.query('begin');
    await holder.query(lock);
    return holder;
  }

  /** Kills a process once it waits for the lock, and waits until its database sessions have ended. */
  async function killWhen(running: ReturnType<typeof startScript>, waiting: RegExp, holder: pg.Client): Promise<void> {
    const observer = new pg.Client(dedicated().url);
    await observer.connect();
    const sessions = async () => {
      const { rows } = await observer.query<{ query: string; waits: boolean }>(
        `select query, coalesce(wait_event_type = 'Lock', false) as waits from pg_stat_activity
          where application_name ~ '^backoffice-(operator|control)' and backend_type = 'client backend'
            and query <> '' and state <> 'idle'`,
      );
      return rows;
    };
    try {
      await eventually(async () => (await sessions()).some(({ query, waits }) => waits && waiting.test(query)), 60_000);
      running.process.kill('SIGKILL');
      await running.ended;
    } finally {
      running.process.kill('SIGKILL');
      await holder.query('rollback');
      await holder.end();
    }
    await eventually(async () => (await sessions()).length === 0);
    await observer.end();
  }

  /** Kills a provision that waits for the lock; returns the state of its tenant afterwards. */
  async function stopAt(slug: string, lock: string, waiting: RegExp): Promise<string> {
    const holder = await hold(lock);
    const args = ['provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`];
    await killWhen(startScript('scripts/tenant.ts', args, dedicated().environment), waiting, holder);
    const [left] = await dedicated().control<{ status: string }>(`select status from tenants where slug = '${slug}'`);
    return left?.status ?? 'none';
  }
  /** Kills a provision, and expects that the next run completes it, with another database if it had one. */
  async function expectCompletedProvision({ name, lock, waiting, left }: (typeof provisionMoments)[number]) {
    await fill(1);
    const [ready = '', ...rest] = await poolLines();
    const slug = `killed-${name.replaceAll(' ', '-')}`;
    expect(await stopAt(slug, lock, waiting)).to.equal(left);
    expect(await poolLines()).to.deep.equal(left === 'none' ? [ready, ...rest] : rest);
    expect(await findings(true)).to.deep.equal(left === 'none' ? [] : [['stuck_provisioning', slug]]);
    await fill(1);
    const { tenant: completed, created } = await dedicated().provision(slug);
    expect([created, completed.status]).to.deep.equal([true, 'active']);
    expect(ready === `${completed.databaseName} ready`).to.equal(left === 'none');
    expect(await dedicated().sql('select guid from tenant_identity', completed.databaseName)).to.deep.equal([
      { guid: completed.guid },
    ]);
    await expectNoOrphan();
  }

  /** Kills a fill of the pool, and expects that the next one completes it. */
  async function expectCompletedFill({ lock, waiting }: Moment): Promise<void> {
    const size = (await poolLines()).length + 2;
    const holder = await hold(lock);
    const args = ['pool', 'fill', '--size', String(size)];
    await killWhen(startScript('scripts/tenant.ts', args, dedicated().environment), waiting, holder);
    await eventually(async () => (await poolLines()).some(line => line.endsWith('unfinished')));
    expect(await findings(true)).to.deep.include(['leftover_database', null]);
    expect(await fill(size)).to.include({ ready: size, error: null });
    await expectNoOrphan();
  }

  return { fill, poolLines, findings, expectNoOrphan, stopAt, expectCompletedProvision, expectCompletedFill };
}
