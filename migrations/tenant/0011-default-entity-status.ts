import { Migration } from '@mikro-orm/migrations';
import { grant } from './sql.ts';

/**
 * The status of an entity that is created without one: the seed Prospect, whatever its title is by now. The reference
 * also keeps it from being deleted. A tenant that has deleted it already gets the first of its other statuses.
 */
export class DefaultEntityStatus extends Migration {
  override up(): void {
    this.addSql(`
      create table default_entity_status (
        singleton boolean primary key default true constraint default_entity_status_singleton_check check (singleton),
        status_id integer not null constraint default_entity_status_status_id_fkey references entity_statuses
      )`);
    this.addSql(`
      insert into default_entity_status (status_id)
        select id from entity_statuses order by id <> 1, weighting, id limit 1`);
    this.addSql(grant('select', 'default_entity_status'));
    this.addSql(`
      create function default_entity_status_id() returns integer language sql stable set search_path = pg_catalog, public, pg_temp
        as 'select status_id from default_entity_status'`);
    this.addSql('alter table entities alter status_id set default default_entity_status_id()');
  }

  override down(): void {
    this.addSql('alter table entities alter status_id set default 1');
    this.addSql('drop function default_entity_status_id');
    this.addSql('drop table default_entity_status');
  }
}
