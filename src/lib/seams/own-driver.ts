import { type MikroORM, type PostgreSqlConnection, PostgreSqlDriver } from '@mikro-orm/postgresql';

type Config = ConstructorParameters<typeof PostgreSqlDriver>[0];

/** A driver of MikroORM with a connection of ours in place of its own. */
export class OwnDriver<Connection extends PostgreSqlConnection> extends PostgreSqlDriver {
  declare protected readonly connection: Connection;
  declare protected readonly platform: ReturnType<PostgreSqlDriver['getPlatform']>;

  /** @param orm its metadata are used, with the platform with which they were made */
  constructor(config: Config, connection: Connection, orm?: MikroORM) {
    super(config);
    this.connection = connection;

    if (orm) {
      this.platform = orm.driver.getPlatform();
      this.setMetadata(orm.getMetadata());
    }
  }
}
