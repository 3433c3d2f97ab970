import { Migration } from '@mikro-orm/migrations';

/** The address of a server without its login, so that the service opens no URL with the rights of the operator. */
export class ServerAddresses extends Migration {
  override up(): void {
    this.addSql(`
      alter table servers
        add address text,
        add on_control_server boolean generated always as (admin_url is null) stored`);
    this.addSql(
      `comment on column servers.address is 'admin_url without its login; null: on_control_server, or not filled in yet by control migrate'`,
    );
  }

  override down(): void {
    this.addSql('alter table servers drop column address, drop column on_control_server');
  }
}
