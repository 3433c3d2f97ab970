import type { TenantRecord } from '../../control/records.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import type { AccountAction, AccountLink } from './account-link.ts';
import { accountMail } from './account-mail.ts';
import { type LinkKind, linkToken } from './mail-link.ts';
import type { BegunMail, LeasedMail, MailAbout } from './mail-queue.ts';
import type { Message } from './mail-transport.ts';

export interface ComposeServices {
  readonly secrets: Pick<SecretBox, 'mac' | 'isReady'>;
  readonly accountLink: AccountLink;
  readonly publicUrl: string;
}

type Tenant = Pick<TenantRecord, 'guid' | 'name' | 'appUrl'>;

const actions: Readonly<Record<LinkKind, AccountAction>> = {
  invitation: 'accept',
  registration: 'confirm',
  reset: 'reset',
};

/**
 * Composes a mail: each attempt composes the same one.
 * @throws {MasterKeyError} while neither key of the process is the present one
 */
export function composeMail(
  { secrets, accountLink, publicUrl }: ComposeServices,
  tenant: Tenant,
  { kind, about }: LeasedMail,
  begun: BegunMail,
): Message {
  const to = begun.email; // the stored address, never the one in the request
  if (kind === 'webhook_disabled') return disabledWebhookMail(publicUrl, tenant, to, about);
  if (kind === 'account_notice') {
    return about.because === 'provider'
      ? providerMail(tenant, to, about)
      : noticeMail(tenant, to, about);
  }

  const { link, userGuid } = begun;
  const token = linkToken(secrets, { link, kind, tenantGuid: tenant.guid, userGuid });
  const address = accountLink(actions[kind], tenant, token);

  if (kind === 'invitation' && about.because === 'unconfirmed') {
    return unconfirmedMail(tenant, to, address);
  }
  if (kind === 'invitation') return invitationMail(tenant, to, about, address);
  if (kind === 'reset') return resetMail(tenant, to, about, address);

  return accountMail({
    to,
    subject: `Confirm your address for ${tenant.name}`,
    paragraphs: [
      `Somebody, probably you, registered this address with ${tenant.name}.`,
      describeRegistration(begun),
    ],
    link: { text: 'Confirm the address', address },
    notes: [
      'The link works once, within 24 hours.',
      'If it was not you, or not at that time, do nothing: the link would let somebody else use your address. Your own ' +
        'registration has a mail of its own.',
    ],
  });
}

/**
 * Returns the sentence that names the mail that was asked for, in the mail that is sent
 * instead.
 */
function askedText({ name }: Tenant, { asked }: MailAbout): string {
  return asked === 'registration'
    ? `Somebody, probably you, registered this address with ${name}.`
    : `Somebody, probably you, asked for a new password for ${name}.`;
}

function invitationMail(tenant: Tenant, to: string, about: MailAbout, address: string): Message {
  const invites = `An administrator of ${tenant.name} invites you to use its back office.`;
  const again =
    'You were invited before, and have not accepted yet. An earlier link does not work any more.';

  return accountMail({
    to,
    subject: `Your invitation to ${tenant.name}`,
    paragraphs: about.asked ? [askedText(tenant, about), again] : [invites],
    link: { text: 'Accept the invitation', address },
    notes: [
      'The link works once, within 7 days.',
      'If you do not expect an invitation, do nothing.',
    ],
  });
}

function resetMail(tenant: Tenant, to: string, about: MailAbout, address: string): Message {
  const isRegistered = about.asked === 'registration';
  const has = 'It has an account there already: log in with its password, or set a new one.';

  return accountMail({
    to,
    subject: isRegistered
      ? `You have an account at ${tenant.name}`
      : `A new password for ${tenant.name}`,
    paragraphs: isRegistered ? [askedText(tenant, about), has] : [askedText(tenant, about)],
    link: { text: 'Set a new password', address },
    notes: [
      'The link works once, within an hour.',
      'If it was not you, do nothing: your password stays as it is.',
    ],
  });
}

/**
 * Composes the mail for a person who has registered, has not confirmed the address, and asks
 * for a new password.
 */
function unconfirmedMail(tenant: Tenant, to: string, address: string): Message {
  return accountMail({
    to,
    subject: `Set your password for ${tenant.name}`,
    paragraphs: [
      askedText(tenant, { asked: 'reset' }),
      'This address is registered there, and not confirmed yet. The link confirms it, and sets a password of your choice.',
    ],
    link: { text: 'Confirm the address, and set a password', address },
    notes: ['The link works once, within an hour.', 'If it was not you, do nothing.'],
  });
}

/** Composes the mail for a person who may not use a password, and signs in at a provider. */
function providerMail(tenant: Tenant, to: string, about: MailAbout): Message {
  const names = (about.providers ?? []).map(thingText);
  const step =
    names.length === 1
      ? `Sign in at ${names[0]}.`
      : `Sign in at one of the providers of ${tenant.name}: ${names.join(', ')}.`;

  return accountMail({
    to,
    subject: `How to log in to ${tenant.name}`,
    paragraphs: [
      askedText(tenant, about),
      `${tenant.name} takes no passwords. ${names.length === 0 ? `Ask an administrator of ${tenant.name} how to log in.` : step}`,
    ],
    notes: ['If it was not you, do nothing.'],
  });
}

/** Composes the mail that explains why no link would help. */
function noticeMail(tenant: Tenant, to: string, about: MailAbout): Message {
  const isDisabled = about.because === 'disabled';
  const step = isDisabled
    ? `An administrator of ${tenant.name} has disabled the account of this address, and can enable it again.`
    : `The registration of this address has expired. Register again, or ask an administrator of ${tenant.name} to invite you.`;

  return accountMail({
    to,
    subject: isDisabled
      ? `Your account at ${tenant.name} is disabled`
      : `Your registration with ${tenant.name} has expired`,
    paragraphs: [askedText(tenant, about), step],
    notes: ['If it was not you, do nothing.'],
  });
}

/**
 * Names a registration, so that the owner of the address recognises one that somebody else has
 * made.
 */
function describeRegistration({ firstName, lastName, createdAt }: BegunMail): string {
  const [day, time] = new Date(createdAt).toISOString().split('T');

  return [
    `First name: ${nameText(firstName ?? '')}`,
    `Last name: ${nameText(lastName ?? '')}`,
    `Registered on ${day} at ${time?.slice(0, 5)} UTC`,
  ].join('\n');
}

const maxNameText = 50; // code points

/**
 * Returns the letters of a name, shortened: a name must not carry a link or a telephone number
 * into the mail.
 */
export function nameText(name: string): string {
  const letters = name.replaceAll(/[^\p{L}\p{M}'’-]+/gu, ' ').trim();
  return [...letters].slice(0, maxNameText).join('');
}

/**
 * Returns the letters and digits of a name that people have chosen: it must not carry a link
 * into the mail.
 */
export function thingText(name: string): string {
  return name.replaceAll(/[^\p{L}\p{M}\p{N}'’-]+/gu, ' ').trim();
}

const reasons = {
  gone: 'The receiver has responded with status 410: it wants no more messages.',
  failing: 'All attempts of the last 5 days have failed.',
  rights: 'The user who made it was disabled, or may no longer read all that it sends.',
};

/**
 * Composes the mail that informs a person who manages the settings of a tenant that the service
 * has disabled a webhook.
 */
function disabledWebhookMail(
  publicUrl: string,
  tenant: Tenant,
  to: string,
  { host = '', reason = 'failing' }: LeasedMail['about'],
): Message {
  return accountMail({
    to,
    subject: `A webhook of ${tenant.name} is disabled`,
    paragraphs: [`Nothing more is sent to\n${host}`, reasons[reason]],
    link: {
      text: 'What you can do',
      address: `${publicUrl}/docs/guide/webhooks#when-a-receiver-fails`,
    },
    notes: [
      'What the webhook has not received is kept. Enable it again when its receiver works: it goes on there.',
    ],
  });
}
