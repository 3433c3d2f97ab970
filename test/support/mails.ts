import { eventually } from './eventually.ts';
import { controlSql, type World } from './world.ts';

const tables = ['mail_deliveries', 'account_notices'];

/**
 * Waits until no mail is due or being sent: each was accepted, refused, dropped, or waits for
 * its next attempt.
 */
export async function mailsSettled(world: World): Promise<void> {
  const due = tables
    .map(table => `select from ${table} where state = 'waiting' and next_attempt_at <= now()`)
    .join(' union all ');

  await eventually(async () => (await controlSql(world, due)).length === 0);
}

/** Lets all mails that wait for their next attempt be tried at once. */
export async function tryMailsNow(world: World): Promise<void> {
  for (const table of tables) {
    await controlSql(world, `update ${table} set next_attempt_at = now() where state = 'waiting'`);
  }
}
