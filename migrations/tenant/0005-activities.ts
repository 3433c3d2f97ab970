import { Migration } from '@mikro-orm/migrations';
import { appendOnly, grant } from './sql.ts';

/** The activity log. Who really recorded an entry, and from where, is kept beside what they said. */
export class Activities extends Migration {
  override up(): void {
    this.addSql(`
      create table activities (
        id bigint generated always as identity primary key,
        created_at timestamptz not null default clock_timestamp(),
        activity_code integer not null,
        user_id bigint,
        comment text,
        entity_id bigint,
        screen text,
        ip_address text,
        recorded_by bigint not null,
        recorded_from text not null
      )`);
    this.addSql(`create index activities_created_at_index on activities (created_at desc, id desc)`);
    this.addSql(`create index activities_user_id_index on activities (user_id, created_at desc, id desc)`);
    this.addSql(`create index activities_entity_id_index on activities (entity_id, created_at desc, id desc)`);
    this.addSql(appendOnly('activities'));
    this.addSql(grant('select, insert', 'activities'));
  }

  override down(): void {
    this.addSql('drop table activities');
  }
}
