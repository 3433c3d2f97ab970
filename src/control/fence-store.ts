import { type ControlDatabase, queryControl } from './database.ts';

/** What the control database says about the fence of a tenant, and where the tenant's database is. */
export interface TenantFence {
  readonly guid: string;
  /** Never used again: the fence that follows has another one. */
  readonly id: string;
  /** False while the processes only prepare for it; true while requests of the tenant wait. */
  readonly closed: boolean;
  /** The server that the tenant will be on, unless the move fails. */
  readonly target: { readonly address: string; readonly identity: string | undefined };
}

/** The fences in the control database, for one process of the service. */
export type FenceStore = ReturnType<typeof createFenceStore>;

interface FenceRow extends Omit<TenantFence, 'target'> {
  readonly address: string | null;
  readonly identity: string | null;
}

const readStatement = `
  select f.tenant_guid as guid, f.id, f.closed, s.address, s.identity
    from tenant_fences f join servers s on s.id = f.to_server_id
   where $1 = '*' or f.tenant_guid::text = $1`;

const acknowledgeStatement = `
  insert into fence_acknowledgements (fence, process, closed)
  select id, $2, closed from tenant_fences where id = $1 and closed = $3
      on conflict do nothing`;

/** @param controlUrl URL of the control database: its server also holds tenants, without an address of its own */
export function createFenceStore(control: ControlDatabase, controlUrl: string, processId: string) {
  return {
    /** Returns the fence of a tenant, or the fences of all tenants (`*`). */
    read: async (guid: string): Promise<TenantFence[]> => {
      const rows = await queryControl<FenceRow>(control, 'fences_read', readStatement, [guid]);
      return rows.map(({ address, identity, ...fence }) => ({
        ...fence,
        target: { address: address ?? controlUrl, identity: identity ?? undefined },
      }));
    },
    /** Records that this process is prepared, or, for a closed fence, that it uses no connection of the tenant. */
    acknowledge: async ({ id, closed }: TenantFence): Promise<void> => {
      await queryControl(control, 'fences_acknowledge', acknowledgeStatement, [id, processId, closed]);
    },
  };
}
