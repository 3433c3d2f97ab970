import type { Installation } from '../../installation.ts';
import { serverAddress, serverIdentitySql } from '../../postgres/server-address.ts';

/** What a process, or all processes together, have of the connections to one server. */
export interface ServerConnectionCounts {
  granted: number;
  held: number;
  wanted: number;
}

/** A process of the installation, and its connections by the name of the server. */
export interface ProcessSummary {
  /** Null when the process is gone, and its connections may still exist. */
  host: string | null;
  pid: number | null;
  kind: string | null;
  build: string | null;
  /** The last tenant migration of the build; null for a command. */
  tenantHead: string | null;
  startedAt: string | null;
  /** Seconds since the last exchange with the control database. */
  heartbeatAge: number | null;
  id: string;
  servers: (ServerConnectionCounts & { server: string })[];
}

type Reader = Pick<Installation, 'controlUrl' | 'statements'>;

interface ProcessRow extends Omit<ProcessSummary, 'servers'>, ServerConnectionCounts {
  server: string | null;
}

/** Returns the processes that are running, or whose connections may still exist; the oldest first. */
export async function listProcesses(reader: Reader): Promise<ProcessSummary[]> {
  const rows = await reader.statements.execute<ProcessRow[]>(
    `select coalesce(p.id, g.process) as id, p.host, p.pid, p.kind, p.build,
            p.tenant_head as "tenantHead",
            to_char(p.started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as "startedAt",
            round(extract(epoch from clock_timestamp() - p.seen_at))::int as "heartbeatAge",
            g.server, g.granted, g.held, g.wanted
       from processes p full join connection_grants g on g.process = p.id
      where g.process is not null or p.seen_at > now() - interval '1 minute'
      order by p.started_at, id, g.server`,
  );
  const names = await serverNames(reader);
  const processes = new Map<string, ProcessSummary>();
  for (const { server, granted, held, wanted, ...process } of rows) {
    const summary = processes.get(process.id) ?? { ...process, servers: [] };
    processes.set(process.id, summary);
    if (server !== null) summary.servers.push({ server: names.get(server) ?? server, granted, held, wanted });
  }
  return [...processes.values()];
}

/** Returns the sums over all processes, by the name of the server. */
export function connectionsByServer(processes: readonly ProcessSummary[]): Map<string, ServerConnectionCounts> {
  const sums = new Map<string, ServerConnectionCounts>();
  for (const { server, granted, held, wanted } of processes.flatMap(each => each.servers)) {
    const sum = sums.get(server) ?? { granted: 0, held: 0, wanted: 0 };
    sums.set(server, { granted: sum.granted + granted, held: sum.held + held, wanted: sum.wanted + wanted });
  }
  return sums;
}

/** The names of the servers, by what the grants call them: their identity, or their address. */
async function serverNames({ statements, controlUrl }: Reader): Promise<Map<string, string>> {
  const names = new Map<string, string>();
  const servers = await statements.execute<
    { name: string; identity: string | null; address: string | null; onControlServer: boolean }[]
  >('select name, identity, address, on_control_server as "onControlServer" from servers order by id desc');
  const [controlServer] = await statements.execute<{ identity: string }[]>(serverIdentitySql);
  for (const { name, identity, address, onControlServer } of servers) {
    const [ownIdentity, ownAddress] = onControlServer ? [controlServer?.identity, controlUrl] : [identity, address];
    if (ownAddress) names.set(serverAddress(ownAddress), name);
    if (ownIdentity) names.set(ownIdentity, name);
  }
  return names;
}
