import type { TenantRecord } from '../../control/records.ts';
import { accountMail } from './account-mail.ts';
import { nameText } from './compose-mail.ts';
import type { Message } from './mail-transport.ts';
import type { DisabledFacts, EndingFacts, Named, NamedKey } from './notice-facts.ts';
import type { LeasedNotice } from './notice-queue.ts';

interface NoticeContext {
  readonly publicUrl: string;
  readonly tenant: Pick<TenantRecord, 'name'>;
  readonly to: string;
  /** True if the recipient gets no more of the kind on this day. */
  readonly isLast: boolean;
}

/** Composes the mail of a notice: each attempt composes the same one. */
export function composeNotice(
  context: NoticeContext,
  { kind, details }: Pick<LeasedNotice, 'kind' | 'details'>,
): Message {
  return kind === 'keys_ending'
    ? keysEndingMail(context, details as EndingFacts)
    : personDisabledMail(context, details as DisabledFacts);
}

function keysEndingMail(context: NoticeContext, { day, keys }: EndingFacts): Message {
  const { tenant, to, publicUrl } = context;
  const isOne = keys.count === 1;

  return accountMail({
    to,
    subject: isOne
      ? `A key of a program of ${tenant.name} ends on ${day}`
      : `${keys.count} keys of programs of ${tenant.name} end on ${day}`,
    paragraphs: [
      isOne
        ? 'The program that uses this key is refused when it ends:'
        : 'Programs that use these keys are refused when they end:',
      linesOf(
        keys,
        key => `${keyText(key)}, ends at ${key.endsAt.slice(11, 16)} UTC, ${usedText(key)}`,
      ),
    ],
    link: {
      text: 'How to replace a key',
      address: `${publicUrl}/docs/guide/programs#replace-a-key`,
    },
    notes: ['A key that nothing uses any more needs no new one.', ...lastNotes(context)],
  });
}

function personDisabledMail(
  context: NoticeContext,
  { userId, name, email, keys, programs, webhooks }: DisabledFacts,
): Message {
  const { tenant, to, publicUrl } = context;
  const parts = [
    ['Keys, of which a copy may be left:', keys.count > 0 && linesOf(keys, keyText)],
    ['Programs:', programs.count > 0 && linesOf(programs, thingText)],
    [
      'Webhooks, which receive nothing more until somebody else changes them:',
      webhooks === null
        ? 'These cannot be read at the moment. Look whether there are any.'
        : webhooks.count > 0 && linesOf(webhooks, host => host),
    ],
  ] as const;

  return accountMail({
    to,
    subject: `${nameText(name)} was disabled at ${tenant.name}`,
    paragraphs: [
      `The account of ${nameText(name)} was disabled:\n${email}, user ${userId}`,
      'This person has made what follows. Keys and programs go on, unless you end them.',
      ...parts.flatMap(([title, lines]) => (lines ? [`${title}\n${lines}`] : [])),
    ],
    link: {
      text: 'What to do when somebody leaves',
      address: `${publicUrl}/docs/guide/programs#somebody-leaves`,
    },
    notes: lastNotes(context),
  });
}

function keyText({ program, prefix }: NamedKey): string {
  return `${thingText(program)}: ${prefix}…`;
}

function usedText({ usedOn }: NamedKey): string {
  return usedOn === null ? 'not used' : `last used on ${usedOn}`;
}

function linesOf<Item>({ items, count }: Named<Item>, text: (item: Item) => string): string {
  const more = count - items.length;
  return [...items.map(text), ...(more > 0 ? [`and ${more} more`] : [])].join('\n');
}

function lastNotes({ isLast }: NoticeContext): string[] {
  return isLast ? ['You have got ten mails of this kind in a day: more are not sent.'] : [];
}

/**
 * Returns the letters and digits of a name that people have chosen: it must not carry a link
 * into the mail.
 */
function thingText(name: string): string {
  return name.replaceAll(/[^\p{L}\p{M}\p{N}'’-]+/gu, ' ').trim();
}
