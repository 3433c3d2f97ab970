import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { buildVersion } from '../lib/runtime/build-version.ts';

/** A running process of the installation. */
export interface ProcessIdentity {
  readonly id: string;
  readonly kind: 'service' | 'command';
  readonly host: string;
  readonly pid: number;
  readonly build: string;
  /** The last migrations of the build; null for a command, which serves no requests. */
  readonly heads: { readonly tenant: string; readonly control: string } | null;
  /** True for a process that counts the limits of requests in Redis; null for a command. */
  readonly sharesLimits: boolean | null;
  /** The trusted networks that have clients, too (`wideNetworks`); null for a command. */
  readonly wideProxies: readonly string[] | null;
}

/**
 * Describes this process under a new id. Call it once for each service that the process runs.
 * The order of ids is that of their creation, as far as the clocks of the hosts agree (UUID
 * version 7, RFC 9562 §5.7).
 */
export function newProcess(kind: ProcessIdentity['kind']): ProcessIdentity {
  const time = Date.now().toString(16).padStart(12, '0');
  const id = `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;

  return {
    id,
    kind,
    host: hostname(),
    pid: process.pid,
    build: buildVersion,
    heads: null,
    sharesLimits: null,
    wideProxies: null,
  };
}

/**
 * This process in the connection budget. The names of its connections to the control database
 * end with its id.
 */
export interface BudgetMember {
  readonly process: ProcessIdentity;
  /** Returns the maximum connections of the pool of the control database at this moment. */
  maxControl: () => number;
  /**
   * Called when the server of the control database has refused a connection, because as many
   * are open as it allows.
   */
  onControlRefused: () => void;
}
