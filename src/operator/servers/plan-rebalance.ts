/** A server with its tenants. */
export interface ServerLoad {
  readonly name: string;
  /** Maximum number of tenants; null for no limit. */
  readonly capacity: number | null;
  readonly tenants: readonly { readonly slug: string; readonly bytes: number }[];
}

/** A move of a plan, and the bytes of the fullest server after it. */
export interface PlannedMove {
  readonly slug: string;
  readonly from: string;
  readonly to: string;
  readonly bytes: number;
  readonly fullestAfter: number;
}

/** A move that gains less than this part of the average is not worth it. */
const minGain = 0.02;

/**
 * Plans moves that even out the bytes of servers. Each move makes the pair of its servers more even, so the plan may be
 * stopped after any of them: it moves the largest tenant of the fullest server that fits into half of the difference to
 * the emptiest one.
 */
export function planRebalance(loads: readonly ServerLoad[]): PlannedMove[] {
  const servers = loads.map(({ name, capacity, tenants }) => ({
    name,
    capacity,
    tenants: [...tenants].sort((a, b) => b.bytes - a.bytes),
    bytes: tenants.reduce((sum, { bytes }) => sum + bytes, 0),
  }));
  const average = servers.reduce((sum, { bytes }) => sum + bytes, 0) / Math.max(1, servers.length);
  const moves: PlannedMove[] = [];
  for (;;) {
    const fullest = servers.reduce((a, b) => (b.bytes > a.bytes ? b : a), servers[0] as (typeof servers)[number]);
    const [emptiest] = servers
      .filter(({ capacity, tenants }) => capacity === null || tenants.length < capacity)
      .sort((a, b) => a.bytes - b.bytes);
    if (!fullest || !emptiest || fullest === emptiest) return moves;
    const half = (fullest.bytes - emptiest.bytes) / 2;
    const tenant = fullest.tenants.find(({ bytes }) => bytes <= half && bytes > 0 && bytes >= minGain * average);
    if (!tenant) return moves;
    fullest.tenants.splice(fullest.tenants.indexOf(tenant), 1);
    emptiest.tenants.push(tenant);
    fullest.bytes -= tenant.bytes;
    emptiest.bytes += tenant.bytes;
    const fullestAfter = Math.max(...servers.map(({ bytes }) => bytes));
    moves.push({ slug: tenant.slug, from: fullest.name, to: emptiest.name, bytes: tenant.bytes, fullestAfter });
  }
}
