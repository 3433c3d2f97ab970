import type { TenantRecord } from '../control/records.ts';
import type { SecretBox } from '../control/secret-box.ts';
import type { AccountAction, AccountLink } from './account-link.ts';
import { accountMail } from './account-mail.ts';
import { type LinkKind, linkToken } from './mail-link.ts';
import type { BegunMail, LeasedMail } from './mail-queue.ts';
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

  const { link, userGuid } = begun;
  const token = linkToken(secrets, { link, kind, tenantGuid: tenant.guid, userGuid });
  const address = accountLink(actions[kind], tenant, token);

  if (kind === 'invitation') {
    return accountMail({
      to,
      subject: `Your invitation to ${tenant.name}`,
      paragraphs: [`An administrator of ${tenant.name} invites you to use its back office.`],
      link: { text: 'Accept, and set your password', address },
      notes: ['The link works once, within 7 days.', 'If you do not expect an invitation, do nothing.'],
    });
  }

  if (kind === 'reset') {
    return accountMail({
      to,
      subject: `A new password for ${tenant.name}`,
      paragraphs: [`Somebody, probably you, asked for a new password for ${tenant.name}.`],
      link: { text: 'Set a new password', address },
      notes: ['The link works once, within an hour.', 'If it was not you, do nothing: your password stays as it is.'],
    });
  }

  return accountMail({
    to,
    subject: `Confirm your address for ${tenant.name}`,
    paragraphs: [`Somebody, probably you, registered this address with ${tenant.name}.`, describeRegistration(begun)],
    link: { text: 'Confirm the address', address },
    notes: [
      'The link works once, within 24 hours.',
      'If it was not you, or not at that time, do nothing: the link would let somebody else use your address. Your own ' +
        'registration has a mail of its own.',
    ],
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
function nameText(name: string): string {
  const letters = name.replaceAll(/[^\p{L}\p{M}'’-]+/gu, ' ').trim();
  return [...letters].slice(0, maxNameText).join('');
}

const reasons = {
  gone: 'The receiver has responded with status 410: it wants no more messages.',
  failing: 'All attempts of the last 5 days have failed.',
  rights: 'The user who made it was disabled, or may no longer read all that it sends.',
};

/**
 * Tells one of those who manage the settings of a tenant that the service has disabled a
 * webhook.
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
    link: { text: 'What you can do', address: `${publicUrl}/docs/guide/webhooks#when-a-receiver-fails` },
    notes: ['What the webhook has not received is kept. Enable it again when its receiver works: it goes on there.'],
  });
}
