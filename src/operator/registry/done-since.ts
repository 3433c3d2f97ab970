/** SQL of the last report of doctor. */
export const lastReportSql =
  'select report, made_at, made_by from doctor_reports order by id desc limit 1';

/**
 * SQL for the commands of operators since the report `last`, whose effect is not in the report.
 */
export const doneSql = `
  select command, slug, tenant_guid, arguments from operator_actions, last
   where state = 'done' and finished_at > made_at and command <> 'doctor'`;

/** SQL of the guid of the tenant of a finding; null for one that concerns no tenant. */
export const guidOfFinding = (finding: string): string => `(${finding} ->> 'tenantGuid')::uuid`;

/**
 * SQL: true if one of the commands in the remedy of a finding was run since the report, for its
 * tenant or its server; `done` is `doneSql`. Whether the fault is gone has not been checked.
 * The tenant is compared by its guid: it may have another slug than in the report.
 */
export function isDoneSql(finding: string): string {
  const guid = guidOfFinding(finding);

  return `exists (
    select from done a
     where strpos(${finding} ->> 'remedy', concat('bin/backoffice ', a.command, case when a.slug is not null then ' ' || (${finding} ->> 'tenant') end)) > 0
       and case when a.slug is not null then a.tenant_guid = ${guid}
                when jsonb_exists(a.arguments, 'slugs') then exists (
                  select from tenant_slugs n where n.tenant_guid = ${guid} and jsonb_exists(a.arguments -> 'slugs', n.slug))
                when jsonb_exists(a.arguments, 'name') then a.arguments ->> 'name' = ${finding} ->> 'server'
                else true end)`;
}
