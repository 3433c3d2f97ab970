import { Migration } from '@mikro-orm/migrations';

/** The client networks that users have logged in from: they may log in while guesses at the account are refused. */
export class LoginNetworks extends Migration {
  override up(): void {
    this.addSql(`
      create table login_networks (
        user_id bigint not null constraint login_networks_user_id_fkey references users on delete cascade,
        network text not null,
        last_login_at timestamptz not null default now(),
        constraint login_networks_pkey primary key (user_id, network)
      )`);
    this.addSql(`comment on column login_networks.network is 'an IPv4 address, or an IPv6 network of 64 bits'`);
    this.addSql(`comment on column login_networks.last_login_at is 'to the day; the row is removed after 30 days'`);
  }

  override down(): void {
    this.addSql('drop table login_networks');
  }
}
