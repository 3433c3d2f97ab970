import type { Grant, GrantChange, ServerGrants } from '../budget/grants.ts';
import type { Statement } from '../postgres/statement.ts';
import { type ControlDatabase, queryControl } from './database.ts';
import type { ProcessIdentity } from './process-identity.ts';
import type { SecretBox } from './secret-box.ts';

interface GrantRow extends Record<Exclude<keyof Grant, 'holder' | 'kind' | 'heartbeat'>, number> {
  version: string;
  process: string | null;
  kind: Grant['kind'];
  heartbeat: string;
}

const readStatement = `
  select s.version, process, coalesce(p.kind, 'service') as kind, granted, held, wanted, reserved, budget, heartbeat
    from connection_servers s left join connection_grants g using (server) left join processes p on p.id = process
   where server = $1`;

/**
 * One statement, so that a process that stops in the middle of an exchange holds no lock. If another process changes
 * the version first, PostgreSQL checks it again after the wait for the row, and the statement does nothing. It
 * names only the columns that the control database has: the migration that adds one may not have run yet.
 */
const writeStatement = `
  with current as (
    update connection_servers set version = version + 1 where server = $1 and version = $2 returning server
  ), process as (
    insert into processes
    select p.* from current, jsonb_populate_record(null::processes, $4::jsonb || jsonb_build_object(
        'id', $3::uuid, 'started_at', now(), 'seen_at', now())) p
        on conflict (id) do update set seen_at = now()
  ), own as (
    insert into connection_grants (server, process, granted, held, wanted, reserved, budget, heartbeat)
    select server, $3, $5, $6, $7, $8, $9, $10 from current
        on conflict (server, process) do update
       set granted = excluded.granted, held = excluded.held, wanted = excluded.wanted,
           reserved = excluded.reserved, budget = excluded.budget, heartbeat = excluded.heartbeat
  ), removed as (
    delete from connection_grants g using current where g.server = current.server and g.process = any($11::uuid[])
  )
  select from current`;

const leaveStatement = `
  with removed as (
    delete from connection_grants where process = $1 returning server
  ), changed as (
    update connection_servers s set version = version + 1 from removed where s.server = removed.server
  )
  delete from processes where id = $1`;

/** A process without grants has ended if it has not been seen for a minute, or another one found it gone. */
const forgetStatement = `
  delete from processes p
   where (seen_at < now() - interval '1 minute' or id = any($1::uuid[]))
     and not exists (select from connection_grants where process = p.id)`;

/** The grants of all servers in the control database, for one process. */
export type GrantStore = ReturnType<typeof createGrantStore>;

/** Connections of a process to one database. */
export interface ProcessConnection {
  readonly process: string;
  /** Null while the connection is being opened. */
  readonly database: string | null;
  /** False if it was to be ended (`end` names its process), and this login may not end it. */
  readonly ended: boolean;
}

/**
 * Finds the connections of processes to a server, by the id at the end of their names. Ends those of some processes, as
 * far as the login may: a login may end its own connections, and those of roles of which it is a member.
 */
export function findStatement(processes: readonly string[], end: readonly string[]): Statement {
  return { name: 'process_connections', text: findText, values: [processes, end] };
}

const findText = `
  select process, database, bool_and(ended) as ended
    from (select right(application_name, 36) as process, datname as database,
                 case when right(application_name, 36) = any($2::text[]) and pg_has_role(usesysid, 'usage')
                      then pg_terminate_backend(pid) else false end as ended
            from pg_stat_activity
           where application_name like 'backoffice-%' and right(application_name, 36) = any($1::text[])) as found
   group by process, database`;

/** @param keys of the process: registered by their fingerprints */
export function createGrantStore(
  control: ControlDatabase,
  process: ProcessIdentity,
  keys: Pick<SecretBox, 'current' | 'previous'>,
) {
  const { id, heads, ...identity } = process;
  const registered = JSON.stringify({
    ...identity,
    tenant_head: heads?.tenant,
    control_head: heads?.control,
    master_key: keys.current.fingerprint,
    previous_master_key: keys.previous?.fingerprint,
  });
  return {
    process,
    read: async (server: string): Promise<ServerGrants> => {
      const read = (): Promise<GrantRow[]> => queryControl<GrantRow>(control, 'grants_read', readStatement, [server]);
      let rows = await read();
      if (rows.length === 0) {
        const add = 'insert into connection_servers (server) values ($1) on conflict do nothing';
        await queryControl(control, 'grants_add_server', add, [server]);
        await queryControl(control, 'grants_forget', forgetStatement, [[]]);
        rows = await read();
      }
      const grants = rows.flatMap(({ process: holder, heartbeat, version: _, ...grant }) =>
        holder === null ? [] : [{ ...grant, holder, heartbeat: Number(heartbeat) }],
      );
      return { version: Number(rows[0]?.version), grants };
    },
    /** @returns false when the change had no effect, because its version is not the current one */
    write: async (server: string, { version, own, remove }: GrantChange): Promise<boolean> => {
      const { granted, held, wanted, reserved, budget, heartbeat } = own;
      const grant = [granted, held, wanted, reserved, budget, heartbeat];
      const values = [server, version, id, registered, ...grant, remove];
      const rows = await queryControl(control, 'grants_write', writeStatement, values);
      if (rows.length > 0 && remove.length > 0) await queryControl(control, 'grants_forget', forgetStatement, [remove]);
      return rows.length > 0;
    },
    /** Removes the process and its grants. None of its connections may exist, or be opened afterwards. */
    leave: async (): Promise<void> => {
      await queryControl(control, 'grants_leave', leaveStatement, [id]);
    },
    /** Finds and ends connections to the server of the control database, as `findStatement` does. */
    findConnections: (processes: readonly string[], end: readonly string[]) => {
      const { name, text, values } = findStatement(processes, end);
      return queryControl<ProcessConnection>(control, name, text, values);
    },
  };
}
