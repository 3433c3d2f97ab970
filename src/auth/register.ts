import { type EntityManager, LockMode } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { Role, User } from '../control/control-entities.ts';
import { type ControlDatabase, type QueryControl, queryControl } from '../control/database.ts';
import { fieldProblem, problem } from '../errors.ts';
import { clientNetwork } from '../http/client-address.ts';
import { lengths, text } from '../http/fields.ts';
import { bodyLimits } from '../http/route.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import { requireMayGrant } from '../tenancy/permission-rules.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import { requireManager } from '../tenancy/require-manager.ts';
import { accountMail } from './account-mail.ts';
import type { AuthServices } from './auth-services.ts';
import { email } from './email.ts';
import { hashRequester } from './hash-queue.ts';
import { newPassword } from './new-password.ts';
import { confirmRegistration, createRegistration, type RegistrationData } from './registration-token.ts';

export const acceptedResponse = z.object({
  status: z.literal('accepted').describe('Always `accepted`, whether or not the address is known.'),
});

const registration = z.object({
  email: email().describe('The e-mail address, which receives the mail.'),
  password: newPassword().describe('The password to log in with once the address is confirmed.'),
  firstName: text({ max: lengths.name }).describe('The first name of the person.'),
  lastName: text({ max: lengths.name }).describe('The last name of the person.'),
});

/**
 * Adds a user, who must confirm the e-mail address. Anyone may call it if the tenant has the feature
 * `selfRegistration`. A caller with a token needs what an invitation of a Member needs, and is the actor in the audit
 * log when the user confirms. Response and response time do not depend on whether the address is known, because
 * everything that depends on it runs in the background.
 */
export function register(services: AuthServices): TenantRoute {
  const { control, passwords, background } = services;
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/register',
    access: 'optional',
    rateLimit: 'account',
    problems: ['forbidden'],
    tag: 'Authentication',
    summary: 'Add a user, who receives a mail to confirm the address',
    description:
      'Open to anyone if the tenant has the feature `selfRegistration`; otherwise the caller needs the permission ' +
      '`users.manage`, the scope `All`, and all permissions of the role `Member`, which the user gets. The response does ' +
      'not reveal whether the address was known.',
    body: registration,
    example: { email: 'new@example.com', password: 'correct horse battery', firstName: 'Nora', lastName: 'Newman' },
    bodyLimit: bodyLimits.auth,
    response: acceptedResponse,
    status: 202,
    handler: async ({ body: { password, ...person } }, context) => {
      await requireMayRegister(control, context);
      const passwordHash = await passwords.hash(password, hashRequester(context));
      const registration = { ...person, passwordHash, actor: context.optionalCaller ? context.actor : null };
      const requestedAt = new Date();
      background.run('register', () => addUnconfirmed(services, context, registration, requestedAt));
      return { status: 'accepted' as const };
    },
  });
}

const memberPermissions = `select permissions from roles where tenant_id = $1 and name = 'Member'`;

/** Who registers somebody with a token grants the role `Member`, by the same rule as an invitation. */
async function requireMayRegister(control: ControlDatabase, context: RequestContext): Promise<void> {
  if (!context.optionalCaller) {
    if (context.tenant.features.includes('selfRegistration')) return;
    throw problem('unauthorized', { reason: 'no_token', headers: { 'WWW-Authenticate': 'Bearer' } });
  }
  const query: QueryControl = (name, text, values) => queryControl(control, name, text, values);
  const held = await requireManager(query, context);
  const [member] = await query<Pick<Role, 'permissions'>>('member_permissions', memberPermissions, [context.tenant.id]);
  requireMayGrant(member?.permissions ?? [], held);
}

interface Registration extends RegistrationData {
  readonly email: string;
}

async function addUnconfirmed(
  { control, mailLimits, sendMail, accountLink }: AuthServices,
  { tenant, origin }: Pick<RequestContext, 'tenant' | 'origin'>,
  person: Registration,
  requestedAt: Date,
): Promise<void> {
  const em = control.em.fork();
  const token = await em.transactional(async tx => {
    const key = { tenant: tenant.id, email: person.email };
    // The lock keeps a user who has not confirmed yet from being removed meanwhile.
    const known = await tx.findOne(User, key, { lockMode: LockMode.PESSIMISTIC_WRITE });
    if (known && !isRegistration(known)) return undefined;
    const account = { tenantGuid: tenant.guid, email: person.email };
    if (!(await mailLimits.allowRegistration(account, origin.ipAddress))) return undefined;
    const user = known ?? (await insertUnconfirmed(tx, tenant.id, person));
    if (!isRegistration(user)) return undefined;
    return createRegistration(tx, { id: user.id, tenantId: tenant.id }, person);
  });
  if (token === undefined) return;
  const mail = accountMail({
    to: person.email,
    subject: `Confirm your address for ${tenant.name}`,
    paragraphs: [
      `Somebody, probably you, registered this address with ${tenant.name}.`,
      describeRegistration(person, requestedAt),
    ],
    link: { text: 'Confirm the address', address: accountLink('confirm', tenant, token) },
    notes: [
      'The link works once, within 24 hours.',
      'If it was not you, or not at that time, do nothing: the link would let somebody else use your address. Your own ' +
        'registration has a mail of its own.',
    ],
  });
  await sendMail(tenant, mail);
}

/**
 * True for a user who has only registered. Who was invited keeps the role that the invitation gives: the password of a
 * registration, which anyone can send, must not become theirs.
 */
function isRegistration({ confirmedAt, disabledAt, invitedAt }: User): boolean {
  return !confirmedAt && !disabledAt && !invitedAt;
}

/** Names a registration, so that the owner of the address recognises one that somebody else has made. */
function describeRegistration({ firstName, lastName }: Registration, requestedAt: Date): string {
  const [day, time] = requestedAt.toISOString().split('T');
  return [
    `First name: ${nameText(firstName)}`,
    `Last name: ${nameText(lastName)}`,
    `Registered on ${day} at ${time?.slice(0, 5)} UTC`,
  ].join('\n');
}

const maxNameText = 50; // code points

/** Returns the letters of a name, shortened: a name must not carry a link or a telephone number into the mail. */
function nameText(name: string): string {
  const letters = name.replaceAll(/[^\p{L}\p{M}'’-]+/gu, ' ').trim();
  return [...letters].slice(0, maxNameText).join('');
}

/**
 * Inserts a user, or returns the one that another registration of the address has just inserted. Password and names of
 * an unconfirmed user are placeholders: confirming sets those of the confirmed registration.
 */
async function insertUnconfirmed(em: EntityManager, tenant: number, person: Registration): Promise<User> {
  const role = await em.findOneOrFail(Role, { tenant, name: 'Member' });
  const { email, passwordHash, firstName, lastName } = person;
  const user = { email, passwordHash, firstName, lastName, tenant, role, scope: 'Self' as const };
  return em.upsert(User, user, { onConflictFields: ['tenant', 'email'], onConflictAction: 'ignore' });
}

/** The same problem for an unknown, used, expired or foreign token. */
export const invalidMailToken = () => fieldProblem('token', 'is invalid, used or expired', 'invalid_token');

/** Confirms an e-mail address by the token that was sent to it. */
export function confirm({ control }: AuthServices): TenantRoute {
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/confirm',
    access: 'anonymous',
    rateLimit: 'account',
    tag: 'Authentication',
    summary: 'Confirm an e-mail address',
    description: 'Password and names become those of the registration that the token was sent for.',
    body: z.object({ token: z.string().min(1).describe('The token of the mail.') }),
    example: { token: 'the token of the mail' },
    bodyLimit: bodyLimits.auth,
    handler: async ({ body }, { tenant, origin, deadline }) => {
      const network = clientNetwork(origin.ipAddress);
      if (!(await confirmRegistration(control, tenant.id, body.token, network, deadline))) throw invalidMailToken();
    },
  });
}
