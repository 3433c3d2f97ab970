/** SQL of the last report of doctor. */
export const lastReportSql =
  'select report, made_at, made_by from doctor_reports order by id desc limit 1';

/**
 * SQL for the commands of operators since the report `last`, whose effect is not in the report.
 */
export const doneSql = `
  select command, slug, arguments from operator_actions, last
   where state = 'done' and finished_at > made_at and command <> 'doctor'`;

/**
 * SQL: true if one of the commands in the remedy of a finding was run since the report, for its
 * tenant or its server; `done` is `doneSql`. Whether the fault is gone has not been checked.
 */
export function isDoneSql(finding: string): string {
  return `exists (
    select from done a
     where strpos(${finding} ->> 'remedy', concat('bin/backoffice ', a.command, ' ' || a.slug)) > 0
       and case when a.slug is not null then a.slug = ${finding} ->> 'tenant'
                when jsonb_exists(a.arguments, 'slugs') then jsonb_exists(a.arguments -> 'slugs', ${finding} ->> 'tenant')
                when jsonb_exists(a.arguments, 'name') then a.arguments ->> 'name' = ${finding} ->> 'server'
                else true end)`;
}
