import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Grant, GrantChange, ServerGrants } from '../budget/grants.ts';
import { type ControlDatabase, queryControl } from './database.ts';

/** A running process of the installation. */
export interface ProcessIdentity {
  readonly id: string;
  readonly kind: 'service' | 'command';
  readonly host: string;
  readonly pid: number;
  readonly build: string;
  /** The last migrations that the build has; null for a command, which serves nothing. */
  readonly heads: { readonly tenant: string; readonly control: string } | null;
}

/** Describes this process under a new id. Call it once for each service that the process runs. */
export function newProcess(kind: ProcessIdentity['kind'], heads: ProcessIdentity['heads'] = null): ProcessIdentity {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
  return { id: randomUUID(), kind, host: hostname(), pid: process.pid, build: version, heads };
}

/** Returns the name that the tenant connections of a process have in `pg_stat_activity`. */
export function connectionName(processId: string): string {
  return `backoffice-api ${processId}`;
}

interface GrantRow extends Record<Exclude<keyof Grant, 'holder' | 'heartbeat'>, number> {
  version: string;
  process: string | null;
  heartbeat: string;
}

const readStatement = `
  select s.version, process, granted, held, wanted, reserved, budget, heartbeat
    from connection_servers s left join connection_grants g using (server)
   where server = $1`;

/**
 * One statement, so that a process that stops in the middle of an exchange holds no lock. If another process changes
 * the version first, PostgreSQL checks it again after the wait for the row, and the statement does nothing.
 */
const writeStatement = `
  with current as (
    update connection_servers set version = version + 1 where server = $1 and version = $2 returning server
  ), process as (
    insert into processes (id, kind, host, pid, build, tenant_head, control_head)
    select $3, $4, $5, $6, $7, $15, $16 from current
        on conflict (id) do update set seen_at = now()
  ), own as (
    insert into connection_grants (server, process, granted, held, wanted, reserved, budget, heartbeat)
    select server, $3, $8, $9, $10, $11, $12, $13 from current
        on conflict (server, process) do update
       set granted = excluded.granted, held = excluded.held, wanted = excluded.wanted,
           reserved = excluded.reserved, budget = excluded.budget, heartbeat = excluded.heartbeat
  ), removed as (
    delete from connection_grants g using current where g.server = current.server and g.process = any($14::uuid[])
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
export interface GrantStore {
  readonly process: ProcessIdentity;
  read(server: string): Promise<ServerGrants>;
  /** @returns false when the change had no effect, because its version is not the current one */
  write(server: string, change: GrantChange): Promise<boolean>;
  /** Removes the process and its grants. None of its connections may exist, or be opened afterwards. */
  leave(): Promise<void>;
  /** Which of these processes have connections to the server of the control database? */
  findConnections(processes: readonly string[]): Promise<string[]>;
}

export function createGrantStore(control: ControlDatabase, process: ProcessIdentity): GrantStore {
  const { id, kind, host, pid, build, heads } = process;
  return {
    process,
    read: async server => {
      const read = (): Promise<GrantRow[]> => queryControl<GrantRow>(control, 'grants_read', readStatement, [server]);
      let rows = await read();
      if (rows.length === 0) {
        const add = 'insert into connection_servers (server) values ($1) on conflict do nothing';
        await queryControl(control, 'grants_add_server', add, [server]);
        await queryControl(control, 'grants_forget', forgetStatement, [[]]);
        rows = await read();
      }
      const grants = rows.flatMap(({ process: holder, heartbeat, granted, held, wanted, reserved, budget }) =>
        holder === null ? [] : [{ holder, granted, held, wanted, reserved, budget, heartbeat: Number(heartbeat) }],
      );
      return { version: Number(rows[0]?.version), grants };
    },
    write: async (server, { version, own, remove }) => {
      const { granted, held, wanted, reserved, budget, heartbeat } = own;
      const grant = [granted, held, wanted, reserved, budget, heartbeat];
      const values = [server, version, id, kind, host, pid, build, ...grant, remove, heads?.tenant, heads?.control];
      const rows = await queryControl(control, 'grants_write', writeStatement, values);
      if (rows.length > 0 && remove.length > 0) await queryControl(control, 'grants_forget', forgetStatement, [remove]);
      return rows.length > 0;
    },
    leave: async () => {
      await queryControl(control, 'grants_leave', leaveStatement, [id]);
    },
    findConnections: async processes => {
      const rows = await queryControl<{ name: string }>(control, 'grants_connections', connectionsStatement, [
        processes.map(connectionName),
      ]);
      return processesOf(processes, rows);
    },
  };
}

/** Every login sees the names of all connections of a server. The parameter is an array of names. */
export const connectionsStatement = `
  select distinct application_name as name from pg_stat_activity where application_name = any($1::text[])`;

/** Returns those of the processes whose connections are among the rows of `connectionsStatement`. */
export function processesOf(processes: readonly string[], rows: readonly { name: string }[]): string[] {
  return processes.filter(process => rows.some(({ name }) => name === connectionName(process)));
}
