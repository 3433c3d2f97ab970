import { type ControlDatabase, type QueryControl, queryControl } from '../../control/database.ts';

const insertDisabled = `
  insert into account_notices (tenant_id, kind, details)
  select tenant_id, 'person_disabled', jsonb_build_object('userId', id)
    from users where id = $1 and kind = 'person'`;

/** Lets the administrators of a tenant learn that a person was disabled. */
export async function addDisabledNotice(query: QueryControl, userId: number): Promise<void> {
  await query('notices_insert_disabled', insertDisabled, [userId]);
}

/**
 * The notices before a key ends: so many days before its day, and as late as `until` days before
 * it where the service was away meanwhile. A day is one of UTC.
 */
const steps = '(values (14, 2), (1, 1)) step (days, until)';
/** Of the keys of a day, those that were made before the notice is due are named in it. */
const insertEnding = `
  insert into account_notices (tenant_id, kind, details, occasion, expires_at)
  select distinct k.tenant_id, 'keys_ending', jsonb_build_object('day', ends.day, 'madeBefore', due.since),
         to_char(ends.day, 'YYYY-MM-DD') || ', ' || step.days, (ends.day - step.until + 1)::timestamp at time zone 'UTC'
    from program_keys k
    join tenants t on t.id = k.tenant_id and t.status = 'active' and not t.isolated
    join users u on u.id = k.program_id and u.disabled_at is null
   cross join lateral (select (k.expires_at at time zone 'UTC')::date as day) ends
   cross join (select ($1::timestamptz at time zone 'UTC')::date as day) today
    join ${steps} on ends.day between today.day + step.until and today.day + step.days
   cross join lateral (select (ends.day - step.days)::timestamp at time zone 'UTC' as since) due
   where k.revoked_at is null and k.expires_at between $1::timestamptz and $1::timestamptz + interval '16 days'
     and k.created_at < due.since
  on conflict on constraint account_notices_occasion_unique do nothing
  returning id`;

/**
 * Lets the administrators of each tenant learn of keys that end in two weeks, and of those that
 * end on the next day: once for all keys of a day.
 * @param now in ms since 1970
 * @returns true if there are any
 */
export async function addEndingNotices(control: ControlDatabase, now: number): Promise<boolean> {
  const values = [new Date(now).toISOString()];
  return (await queryControl(control, 'notices_insert_ending', insertEnding, values)).length > 0;
}

/** The wrong codes of a person after which a notice is sent. */
const noticedCodes = 5;
const insertWrongCodes = `
  insert into account_notices (tenant_id, user_id, kind, details, occasion, trace_id)
  select tenant_id, user_id, 'wrong_codes', jsonb_build_object('ipAddress', $2::text),
         user_id || ', ' || extract(epoch from since), $3
    from wrong_codes where user_id = $1 and count >= ${noticedCodes}
  on conflict on constraint account_notices_occasion_unique do nothing`;

/**
 * Lets a person learn of the fifth wrong code, once in the 24 hours for which they are counted.
 * A trigger could not: a code is counted before it is compared.
 */
export async function addWrongCodesNotice(
  control: ControlDatabase,
  userId: number,
  { ipAddress, traceId }: CodeOrigin,
): Promise<void> {
  const values = [userId, ipAddress, traceId];
  await queryControl(control, 'notices_insert_wrong_codes', insertWrongCodes, values);
}

/** The request that had a code. */
export interface CodeOrigin {
  readonly ipAddress: string;
  readonly traceId: string;
}
