import { type Html, html } from '../../lib/html/html.ts';
import type { Problem } from '../../lib/problems.ts';
import { type PasswordRule, passwordError } from '../auth/new-password.ts';
import type { AccountAction } from '../mails/account-link.ts';
import type { SentLink } from '../mails/use-link.ts';
import type { FormErrors } from './forms.ts';

export const titles: Record<AccountAction, string> = {
  accept: 'Set your password',
  confirm: 'Confirm your address',
  reset: 'Set a new password',
};

/** Returns the errors of a password and its repetition, in words. */
export function passwordErrors(password: string, repeated: string, rule: PasswordRule): FormErrors {
  const error = passwordError(password, rule);
  if (error) return { password: passwordWords(error) };
  return password === repeated ? {} : { repeated: 'The two passwords differ. Type both again.' };
}

function passwordWords({ code, min, max }: NonNullable<ReturnType<typeof passwordError>>): string {
  if (code === 'too_short') return `This password is too short: use at least ${min} characters.`;
  if (code === 'too_long') return `This password is too long: use at most ${max} characters.`;
  if (code === 'too_common') {
    return 'Many people use this password, so it is guessed first. Choose another one.';
  }
  if (code === 'own_words') {
    return 'This password consists of names that belong to your account, so it is guessed first. Choose another one.';
  }
  return 'This password has characters that cannot be used. Choose another one.';
}

const requestLink = (tenant: string): Html =>
  html`<a href="reset?tenant=${encodeURIComponent(tenant)}">Request another mail</a>`;

const remedies: Record<AccountAction, (tenant: string) => Html> = {
  accept: tenant =>
    html`${requestLink(tenant)}, or ask the person who invited you to send another invitation.`,
  confirm: () =>
    html`If you have confirmed your address before, you can log in. Otherwise register again.`,
  reset: tenant => html`${requestLink(tenant)}.`,
};

/**
 * The text for a link that is used, expired, replaced or incomplete, and the next step of the
 * reader.
 */
export function invalidLink(
  action: AccountAction,
  tenant: string,
  link: SentLink | undefined,
): Html {
  if (link?.isDisabled) {
    return html`<p>The account is disabled.</p>
<p>An administrator can enable it again.</p>`;
  }
  if (link?.state === 'used') return usedLink(action, tenant, link);

  return html`<p>${reasonOf(link)}</p>
<p>${remedies[action](tenant)}</p>`;
}

function usedLink(
  action: AccountAction,
  tenant: string,
  { email, usedSecondsAgo }: SentLink,
): Html {
  const minutes = Math.round((usedSecondsAgo ?? 0) / 60);
  const since =
    minutes < 90
      ? `${minutes} ${minutes === 1 ? 'minute' : 'minutes'}`
      : `${Math.round(minutes / 60)} hours`;
  if (action === 'confirm') {
    return html`<p>The address was confirmed with it ${since} ago. You can log in with your password.</p>`;
  }
  return html`<p>The password of <strong>${email}</strong> was set with it ${since} ago. You can log in with that password.</p>
<p>If you do not know it, or it was not you: ${requestLink(tenant)}.</p>`;
}

function reasonOf(link: SentLink | undefined): string {
  if (link?.state === 'expired') return 'The link has expired.';
  if (link?.state === 'ended') {
    return 'A later mail has a newer link, or the account was set up in the meantime.';
  }
  return 'The link was withdrawn, or was not copied completely.';
}

/** Title and text for a request that failed for a reason other than its fields. */
export function failure({ status, headers }: Problem): { title: string; body: Html } {
  const seconds = Number(headers['Retry-After'] ?? 0);
  const wait =
    seconds > 90 ? `${Math.ceil(seconds / 60)} minutes` : `${Math.max(seconds, 1)} seconds`;
  if (status === 429) {
    return {
      title: 'Too many attempts',
      body: html`<p>There were too many attempts from your network. Wait ${wait}, then open the link again.</p>`,
    };
  }

  const text =
    status >= 500
      ? 'The service cannot do this at the moment. Nothing was changed. Open the link again in a minute.'
      : 'The form arrived incomplete. Open the link of the mail again.';

  return { title: 'This did not work', body: html`<p>${text}</p>` };
}
