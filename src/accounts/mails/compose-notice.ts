import type { TenantRecord } from '../../control/records.ts';
import { clientNetwork } from '../../lib/http/request/client-address.ts';
import { accountMail } from './account-mail.ts';
import { nameText, thingText } from './compose-mail.ts';
import type { Message } from './mail-transport.ts';
import type {
  AddedFactor,
  ChangedBy,
  ChangeMaker,
  DisabledFacts,
  EndingFacts,
  LinkedIdentity,
  Named,
  NamedFactor,
  NamedIdentity,
  NamedKey,
  NoticeMail,
} from './notice-kinds.ts';

interface NoticeContext {
  readonly publicUrl: string;
  readonly tenant: Pick<TenantRecord, 'name'>;
  readonly to: string;
  /** When the change was made, in ISO 8601. */
  readonly at: string;
  /** True if the recipient gets no more of the kind on this day. */
  readonly isLast: boolean;
}

/** Composes the mail of a notice: each attempt composes the same one. */
export function composeNotice(context: NoticeContext, notice: NoticeMail): Message {
  const { tenant } = context;

  switch (notice.kind) {
    case 'keys_ending':
      return keysEndingMail(context, notice.details);
    case 'person_disabled':
      return personDisabledMail(context, notice.details);
    case 'clients_ended':
      return clientsEndedMail(context, notice.details);
    case 'password_changed':
      return passwordMail(context, notice.details);
    case 'factor_added':
      return personMail(context, {
        subject: `A second factor was added to your account at ${tenant.name}`,
        change: `Added: ${factorText(notice.details)}`,
        by: notice.details,
        effects: ['Logins need it, or another one that you have, beside the password.'],
      });
    case 'factors_removed':
      return factorsRemovedMail(context, notice.details);
    case 'recovery_code_used':
      return personMail(context, {
        subject: `A recovery code of your account at ${tenant.name} was used`,
        change: 'A recovery code has stood in for a second factor.',
        by: notice.details,
        effects: [`Recovery codes that are left: ${notice.details.left}`],
      });
    case 'wrong_codes':
      return personMail(context, {
        subject: `Wrong codes for your account at ${tenant.name}`,
        change: 'Five codes of your second factor were wrong.',
        by: { by: 'person', ipAddress: notice.details.ipAddress },
        effects: [
          'Whoever has sent them knows your password. After ten in 24 hours, only recovery codes are accepted.',
        ],
      });
    case 'rights_changed':
      return rightsMail(context, notice.details);
    case 'account_disabled':
      return personMail(context, {
        subject: `Your account at ${tenant.name} is disabled`,
        change: 'Your account was disabled. You cannot log in any more.',
        by: notice.details,
      });
    case 'account_enabled':
      return personMail(context, {
        subject: `Your account at ${tenant.name} is enabled`,
        change: 'Your account was enabled. You can log in again.',
        by: notice.details,
      });
    case 'new_network':
      return newNetworkMail(context, notice.details);
    case 'provider_changed':
      return providerMail(context, notice.details);
    case 'sign_in_rules_changed':
      return signInRulesMail(context, notice.details);
    case 'accounts_made':
      return accountsMadeMail(context, notice.details);
    case 'identity_linked':
      return personMail(context, {
        subject: `A sign-in by a provider was added to your account at ${tenant.name}`,
        change: `Added: ${identityText(notice.details)}`,
        by: notice.details,
        effects: ['Whoever signs in there can log in to your account.'],
      });
    case 'identity_unlinked':
      return personMail(context, {
        subject: `A sign-in by a provider was removed from your account at ${tenant.name}`,
        change: `Removed: ${identityText(notice.details)}`,
        by: notice.details,
        effects: ['The sessions that it has opened have ended.'],
      });
  }
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
  { userId, name, email, keys, programs, webhooks, providers }: DisabledFacts,
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
    [
      'Providers of sign-ins, which this person has added or changed. Compare their client ids and rules with yours:',
      providers !== undefined && providers.count > 0 && linesOf(providers, thingText),
    ],
  ] as const;

  return accountMail({
    to,
    subject: `${nameText(name)} was disabled at ${tenant.name}`,
    paragraphs: [
      `The account of ${nameText(name)} was disabled:\n${email}, user ${userId}`,
      'This person has made what follows. Keys, programs and providers go on, unless you end them.',
      ...parts.flatMap(([title, lines]) => (lines ? [`${title}\n${lines}`] : [])),
    ],
    link: {
      text: 'What to do when somebody leaves',
      address: `${publicUrl}/docs/guide/programs#somebody-leaves`,
    },
    notes: lastNotes(context),
  });
}

type DetailsOf<Kind extends NoticeMail['kind']> = Extract<NoticeMail, { kind: Kind }>['details'];

function clientsEndedMail(
  context: NoticeContext,
  { userId, name, email, clients }: DetailsOf<'clients_ended'>,
): Message {
  const { tenant, to, publicUrl } = context;

  return accountMail({
    to,
    subject: `API clients of ${tenant.name} have ended`,
    paragraphs: [
      `A new password was set by the link of a mail:\n${email}, user ${userId}`,
      `These API clients acted for ${nameText(name)}, and are refused now:\n${linesOf(clients, thingText)}`,
    ],
    link: {
      text: 'What to do',
      address: `${publicUrl}/docs/guide/accounts#a-new-password-by-a-link`,
    },
    notes: [
      'Only the operator of the service makes new ones. A program with keys of its own goes on when a person gets a new password.',
      ...lastNotes(context),
    ],
  });
}

const providerChanges = {
  added: 'was added',
  changed: 'was changed',
  disabled: 'was disabled: the sessions that it has opened have ended',
  removed: 'was removed: the sessions that it has opened have ended',
};

function providerMail(
  context: NoticeContext,
  { name, issuer, change, person }: DetailsOf<'provider_changed'>,
): Message {
  const { tenant, to, publicUrl, at } = context;
  return accountMail({
    to,
    subject: `A provider of sign-ins of ${tenant.name} ${change === 'added' ? 'was added' : 'has changed'}`,
    paragraphs: [
      `${thingText(name)} ${providerChanges[change]}.\n${timeText(at)}, ${administratorText(person)}`,
      `Its issuer:\n${thingText(issuer)}`,
      'Whoever decides about a provider can log in as each of its people. Make sure that this change is meant.',
    ],
    link: {
      text: 'What to do',
      address: `${publicUrl}/docs/guide/single-sign-on#a-mail-on-a-provider`,
    },
    notes: lastNotes(context),
  });
}

function administratorText(person: ChangeMaker['person']): string {
  return person
    ? `by ${nameText(person.name)}, ${person.email}`
    : 'by the operator of the service, or by somebody who was removed';
}

const ruleChanges = {
  allowed: 'People can log in by passwords and passkeys again.',
  refused:
    'People log in by a provider only. Sessions that passwords or passkeys have opened have ended, but for those of the people who were excepted.',
};

function signInRulesMail(
  context: NoticeContext,
  { passwordLogins, person }: DetailsOf<'sign_in_rules_changed'>,
): Message {
  const { tenant, to, publicUrl, at } = context;

  return accountMail({
    to,
    subject: `Logins by password at ${tenant.name} are ${passwordLogins}`,
    paragraphs: [
      `${ruleChanges[passwordLogins]}\n${timeText(at)}, ${administratorText(person)}`,
      'Make sure that this change is meant.',
    ],
    link: {
      text: 'What to do',
      address: `${publicUrl}/docs/guide/single-sign-on#without-passwords`,
    },
    notes: lastNotes(context),
  });
}

function accountsMadeMail(
  context: NoticeContext,
  { day, accounts }: DetailsOf<'accounts_made'>,
): Message {
  const { tenant, to, publicUrl } = context;

  return accountMail({
    to,
    subject: `New accounts at ${tenant.name} on ${day}`,
    paragraphs: [
      `People whom a provider knows have got an account at their first login:\n${linesOf(
        accounts,
        ({ email, provider }) => `${email}, ${thingText(provider)}`,
      )}`,
    ],
    link: {
      text: 'Who gets an account',
      address: `${publicUrl}/docs/guide/single-sign-on#accounts-at-the-first-login`,
    },
    notes: lastNotes(context),
  });
}

/** A mail to the person whose account has changed. */
interface PersonMail {
  readonly subject: string;
  readonly change: string;
  /** Undefined: the change names its times and networks. */
  readonly by?: ChangedBy;
  /** Consequences of the change: a paragraph each. */
  readonly effects?: readonly string[];
}

function personMail(
  context: NoticeContext,
  { subject, change, by, effects = [] }: PersonMail,
): Message {
  const { to, publicUrl, at } = context;

  return accountMail({
    to,
    subject,
    paragraphs: [by ? `${change}\n${timeText(at)}, ${makerText(by)}` : change, ...effects],
    link: {
      text: 'What to do if you do not expect this',
      address: `${publicUrl}/docs/guide/accounts#a-mail-on-your-account`,
    },
    notes: ['If you know of it, do nothing.', ...lastNotes(context)],
  });
}

function passwordMail(context: NoticeContext, details: DetailsOf<'password_changed'>): Message {
  const { factors, identities = [], isByLink, by } = details;
  const left =
    factors.length === 0
      ? 'Your account has no second factor.'
      : `These second factors stay. Remove those that are not yours:\n${factors
          .map(addedText)
          .join('\n')}`;
  const held = factors.some(({ isHeld }) => isHeld)
    ? [
        'A passkey that is held completes your logins with the password, and is no whole login before you have confirmed it.',
      ]
    : [];

  return personMail(context, {
    subject: `Your password for ${context.tenant.name} was changed`,
    change: isByLink ? 'A new password was set by the link of a mail.' : 'A new password was set.',
    by: details,
    effects: [...endedTexts(isByLink, by), left, ...held, ...identityTexts(identities)],
  });
}

/** Names the sign-ins by providers that stay, and those that wait for a confirmation. */
function identityTexts(identities: readonly LinkedIdentity[]): string[] {
  const textOf = (identity: LinkedIdentity): string => {
    const network = identity.addedFrom ? `, network ${clientNetwork(identity.addedFrom)}` : '';
    return `${identityText(identity)}, added on ${timeText(identity.addedAt)}${network}`;
  };
  const named = (isHeld: boolean, title: string): string[] => {
    const those = identities.filter(each => each.isHeld === isHeld);
    return those.length === 0 ? [] : [`${title}\n${those.map(textOf).join('\n')}`];
  };

  return [
    ...named(false, 'These sign-ins by a provider stay. Unlink those that are not yours:'),
    ...named(true, 'These sign-ins by a provider are refused until you log in and confirm them:'),
  ];
}

/** Says what has ended with a password; nothing where SQL may have set it. */
function endedTexts(isByLink: boolean, by: ChangedBy['by']): string[] {
  if (isByLink) {
    return ['All sessions have ended, and so have the API clients that acted for you.'];
  }
  return by === 'person' ? ['Your other sessions have ended.'] : [];
}

function factorsRemovedMail(
  context: NoticeContext,
  details: DetailsOf<'factors_removed'>,
): Message {
  const { removed, left, by } = details;
  const isReset = by !== 'person';

  return personMail(context, {
    subject: isReset
      ? `Your second factors at ${context.tenant.name} were reset`
      : `A second factor of your account at ${context.tenant.name} was removed`,
    change: `Removed: ${removed.map(thingText).join(', ')}`,
    by: details,
    effects: [
      left === 0
        ? 'You have no second factor any more: a login needs the password alone, or asks you to set a factor up.'
        : `Second factors that are left: ${left}`,
    ],
  });
}

function rightsMail(context: NoticeContext, details: DetailsOf<'rights_changed'>): Message {
  const { before, after } = details;
  const textOf = ({ role, scope }: typeof before): string => `${thingText(role)}, scope ${scope}`;

  return personMail(context, {
    subject: `Your rights at ${context.tenant.name} were changed`,
    change: `Before: ${textOf(before)}\nNow: ${textOf(after)}`,
    by: details,
  });
}

function newNetworkMail(context: NoticeContext, { logins }: DetailsOf<'new_network'>): Message {
  return personMail(context, {
    subject: `Logins to ${context.tenant.name} from a new network`,
    change: `Somebody, probably you, has logged in from where you have not lately:\n${linesOf(
      logins,
      ({ at, network }) => `${timeText(at)}, network ${network}`,
    )}`,
  });
}

function factorText({ name, kind }: NamedFactor): string {
  return `${thingText(name)} (${kind === 'totp' ? 'authenticator app' : 'passkey'})`;
}

function addedText(factor: AddedFactor): string {
  const { addedAt, addedFrom, isHeld } = factor;
  const network = addedFrom ? `, network ${clientNetwork(addedFrom)}` : '';
  return `${factorText(factor)}, added on ${timeText(addedAt)}${network}${isHeld ? ', held' : ''}`;
}

function identityText({ provider, email }: NamedIdentity): string {
  return email ? `${email}, ${thingText(provider)}` : thingText(provider);
}

function makerText({ by, ipAddress }: ChangedBy): string {
  if (by === 'administrator') return 'by an administrator';
  if (by === 'operator') return 'by the operator of the service';
  return ipAddress === null ? 'by you' : `network ${clientNetwork(ipAddress)}`;
}

function timeText(at: string): string {
  const [day, time] = new Date(at).toISOString().split('T');
  return `${day} at ${time?.slice(0, 5)} UTC`;
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
