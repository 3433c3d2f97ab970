import { type ControlDatabase, queryControl } from './database.ts';

/** The fence of a tenant, as the control database has it. */
export interface TenantFence {
  readonly guid: string;
  /** The id of this fence; no later fence has it. */
  readonly id: string;
  /** False while the processes only prepare for it; true while requests of the tenant wait. */
  readonly closed: boolean;
}

/** The fences in the control database, for one process of the service. */
export type FenceStore = ReturnType<typeof createFenceStore>;

const readStatement = `
  select tenant_guid as guid, id, closed
    from tenant_fences
   where $1 = '*' or tenant_guid::text = $1`;

const acknowledgeStatement = `
  insert into fence_acknowledgements (fence, process, closed)
  select id, $2, closed from tenant_fences where id = $1 and closed = $3
      on conflict do nothing`;

export function createFenceStore(control: ControlDatabase, processId: string) {
  return {
    /** Returns the fence of a tenant, or the fences of all tenants (`*`). */
    read: (guid: string): Promise<TenantFence[]> =>
      queryControl<TenantFence>(control, 'fences_read', readStatement, [guid]),
    /**
     * Records that this process is prepared, or, for a closed fence, that it uses no connection
     * of the tenant.
     */
    acknowledge: async ({ id, closed }: TenantFence): Promise<void> => {
      await queryControl(control, 'fences_acknowledge', acknowledgeStatement, [
        id,
        processId,
        closed,
      ]);
    },
  };
}
