import {
  type ControlDatabase,
  type QueryControl,
  transactControl,
} from '../../control/database.ts';
import { hasProvedFactor } from '../../control/second-factor.ts';

/** Sessions that are revoked at a time; the others are refused all the same. */
const batch = 500;

/** SQL: the sessions without a second factor of the people with a role that requires one. */
const withoutFactor = `
  sessions s join users u on u.id = s.user_id join roles r on r.id = u.role_id
   where r.id = $1 and r.requires_second_factor and u.kind = 'person'
     and s.revoked_at is null and not ${hasProvedFactor('s')}`;
const revokeSome = `
  update sessions set revoked_at = now(), revoked_reason = 'second_factor'
   where id in (select s.id from ${withoutFactor} limit ${batch} for update of s skip locked)
  returning id`;
const markedRole = `
  select id::float8 as id from roles where revokes_sessions order by id limit 1 for no key update skip locked`;
const endRevocation = `
  update roles set revokes_sessions = false where id = $1 and not exists (select from ${withoutFactor})
  returning id`;

/**
 * Revokes some sessions without a second factor of a role that requires one.
 * @returns the number of sessions, at most 500
 */
export async function revokeSomeWithoutFactor(
  query: QueryControl,
  roleId: number,
): Promise<number> {
  return (await query('revoke_some_without_factor', revokeSome, [roleId])).length;
}

/**
 * Revokes the sessions without a second factor of all roles that require one, 500 at a time: a
 * trigger marks a role that begins to require one, and one that somebody has got. A role stays
 * marked while a session is left, such as one that another transaction has locked.
 *
 * Nobody who gets the role is missed: that change holds the row of the role until it is
 * committed, and a row that is held is left to the next time.
 */
export async function revokeWithoutFactor(control: ControlDatabase): Promise<void> {
  const revokeOfOne = async (query: QueryControl): Promise<boolean> => {
    const [role] = await query<{ id: number }>('marked_role', markedRole, []);
    if (!role) return false;

    const revoked = await revokeSomeWithoutFactor(query, role.id);
    if (revoked === batch) return true;

    const ended = await query('end_revocation', endRevocation, [role.id]);
    return revoked > 0 || ended.length > 0;
  };

  while (await transactControl(control, revokeOfOne)) {
    // the next 500, or the next role
  }
}
