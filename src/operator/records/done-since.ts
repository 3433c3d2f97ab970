/** SQL of the last report of doctor. */
export const lastReportSql =
  'select report, made_at, made_by from doctor_reports order by id desc limit 1';

/** SQL for the work of operators since the report `last`, which the report does not know. */
export const doneSql = `
  select command, slug, arguments from operator_actions, last
   where state = 'done' and finished_at > made_at and command <> 'doctor'`;

/**
 * SQL: whether one of the commands that the remedy of a finding names was run since the report,
 * for its tenant or its server, where `done` has `doneSql`. Nobody has looked whether it has
 * helped.
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
