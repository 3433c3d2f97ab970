import { MikroORM } from '@mikro-orm/postgresql';
import { controlOptions } from '../../mikro-orm.config.ts';
import { migrationNames } from '../migrations.ts';

/** The control database: knows all tenants, keys, users and sessions. */
export type ControlDatabase = MikroORM;

/** Opens no connection yet: the pool connects on first use. Close it with `control.close()`. */
export function openControlDatabase(url: string, connections = 2): ControlDatabase {
  return new MikroORM({
    ...controlOptions(url),
    driverOptions: {
      connectionString: url,
      application_name: 'backoffice-control',
      max: connections,
      idleTimeoutMillis: 30_000,
      connectionTimeoutMillis: 3_000,
      statement_timeout: 15_000,
      idle_in_transaction_session_timeout: 30_000,
      keepAlive: true,
    },
  });
}

/** The last migration that the control database has; undefined when it has none. */
export async function controlVersion(control: ControlDatabase): Promise<string | undefined> {
  const [table] = await control.em.execute<{ found: boolean }[]>(
    `select to_regclass('public.migrations') is not null as found`,
  );
  if (!table?.found) return undefined;
  const [row] = await control.em.execute<{ name: string | null }[]>('select max(name) as name from migrations');
  return row?.name ?? undefined;
}

/** The last migration of the control database that this build knows. */
export async function controlHead(): Promise<string> {
  return (await migrationNames('control')).at(-1) ?? '';
}
