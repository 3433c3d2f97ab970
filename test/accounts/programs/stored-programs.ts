import { randomUUID } from 'node:crypto';
import { createProgramKey } from '../../../src/control/program-key.ts';
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

interface StoredKeyOptions {
  /** When it ends, in any form that PostgreSQL reads. Default: in a day. */
  readonly endsAt?: string;
  /** The id of the user who has made it. */
  readonly madeBy?: number;
}

/** Stores a key of a program, and returns it. */
export async function storeKey(
  world: World,
  tenant: TestTenant,
  programId: number,
  { endsAt, madeBy }: StoredKeyOptions = {},
): Promise<{ key: string; id: string; prefix: string }> {
  const { key, hash, prefix } = createProgramKey();
  const [row] = await controlSql<{ id: string }>(
    world,
    `insert into program_keys (tenant_id, program_id, hash, prefix, made_by, expires_at)
     values (?, ?, ?, ?, ?, coalesce(?::timestamptz, now() + interval '1 day')) returning id`,
    [tenant.id, programId, hash, prefix, madeBy ?? null, endsAt ?? null],
  );

  return { key, id: row?.id ?? '', prefix };
}
