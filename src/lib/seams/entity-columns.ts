import { type EntityClass, EntitySchema } from '@mikro-orm/postgresql';

/** MikroORM's metadata of a property, as far as it is known before any connection. */
export interface EntityColumn {
  readonly formula?: (table: string) => string;
  readonly fieldName?: string;
  readonly type?: unknown;
}

/**
 * Returns the table of an entity, and its columns by property, without a MikroORM.
 * @throws when `entity` is not an entity of MikroORM
 */
export function entityColumns(entity: EntityClass<object>): {
  table: string;
  columns: Readonly<Record<string, EntityColumn>>;
} {
  const meta = EntitySchema.REGISTRY.get(entity)?.meta;
  if (!meta) throw new Error(`${entity.name} is not an entity`);

  return {
    table: meta.tableName,
    columns: meta.properties as unknown as Record<string, EntityColumn>,
  };
}
