import { Migration } from '@mikro-orm/migrations';

/** The findings of `doctor` that an operator has accepted, and its last report. */
export class AcceptedFindings extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table accepted_findings (
        id text primary key,
        kind text not null,
        server text not null,
        tenant text,
        tenant_id bigint constraint accepted_findings_tenant_id_fkey references tenants on delete cascade,
        problem text not null,
        reason text not null,
        accepted_by text not null,
        accepted_at timestamptz not null default now()
      )`);
    this.addSql(`comment on column accepted_findings.id is 'digest of kind, server, tenant and problem'`);
    this.addSql(`comment on column accepted_findings.tenant is 'slug; null without a tenant'`);
    this.addSql(`
      create table doctor_reports (
        id bigint generated always as identity primary key,
        made_at timestamptz not null default now(),
        made_by text not null,
        report jsonb not null
      )`);
    this.addSql(`comment on table doctor_reports is 'the last report of doctor, as its --json prints it'`);
  }

  override down(): void {
    this.addSql('drop table accepted_findings, doctor_reports');
  }
}
