import { createHash, randomUUID } from 'node:crypto';
import { controlSql, type TestTenant, type World } from '../../support/world.ts';

interface StoredProgram {
  id: number;
  guid: string;
}

/** Stores a program of a tenant as an operator could, without the API. */
export async function storeProgram(
  world: World,
  tenant: TestTenant,
  { name = 'Till', networks = [] }: { name?: string; networks?: string[] } = {},
): Promise<StoredProgram> {
  const guid = randomUUID();
  const [row] = await controlSql<{ id: string }>(
    world,
    `insert into users (tenant_id, guid, kind, email, password_hash, first_name, last_name, role_id, scope, networks,
                        confirmed_at)
     select ?, ?, 'program', ?, 'none', ?, '', id, 'All', ?::cidr[], now()
       from roles where tenant_id = ? and name = 'Member' returning id`,
    [tenant.id, guid, `program:${guid}`, name, `{${networks.join(',')}}`, tenant.id],
  );

  return { id: Number(row?.id), guid };
}

/** Stores a key of a program that ends in a day. */
export async function storeKey(world: World, tenant: TestTenant, programId: number): Promise<void> {
  await controlSql(
    world,
    `insert into program_keys (tenant_id, program_id, hash, prefix, expires_at)
     values (?, ?, ?, 'sbk_test', now() + interval '1 day')`,
    [tenant.id, programId, createHash('sha256').update(randomUUID()).digest()],
  );
}
