import { eventually } from './eventually.ts';
import { controlSql, type World } from './world.ts';

const due = `select from mail_deliveries where state = 'waiting' and next_attempt_at <= now()`;

/**
 * Waits until no mail is due or being sent: each was accepted, refused, dropped, or waits for
 * its next attempt.
 */
export async function mailsSettled(world: World): Promise<void> {
  await eventually(async () => (await controlSql(world, due)).length === 0);
}

/** Lets all mails that wait for their next attempt be tried at once. */
export async function tryMailsNow(world: World): Promise<void> {
  await controlSql(
    world,
    `update mail_deliveries set next_attempt_at = now() where state = 'waiting'`,
  );
}
