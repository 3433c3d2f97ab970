import { passwordError } from '../auth/new-password.ts';
import { type Html, html } from '../docs/html.ts';
import type { Problem } from '../errors.ts';
import type { AccountAction } from '../mails/account-link.ts';
import type { FormErrors } from './forms.ts';

export const titles: Record<AccountAction, string> = {
  accept: 'Set your password',
  confirm: 'Confirm your address',
  reset: 'Set a new password',
};

/** Returns what is wrong with a password and its repetition, in words. */
export function passwordErrors(password: string, repeated: string): FormErrors {
  const error = passwordError(password);
  if (error) return { password: passwordWords(error) };
  return password === repeated ? {} : { repeated: 'The two passwords differ. Type both again.' };
}

function passwordWords({ code, min, max }: NonNullable<ReturnType<typeof passwordError>>): string {
  if (code === 'too_short') return `This password is too short: use at least ${min} characters.`;
  if (code === 'too_long') return `This password is too long: use at most ${max} characters.`;
  if (code === 'too_common') return 'Many people use this password, so it is guessed first. Choose another one.';
  return 'This password has characters that cannot be used. Choose another one.';
}

const remedies: Record<AccountAction, (tenant: string) => Html> = {
  accept: () => html`Ask the person who invited you to send another invitation.`,
  confirm: () => html`If you have confirmed your address before, you can log in. Otherwise register again.`,
  reset: tenant => html`<a href="reset?tenant=${encodeURIComponent(tenant)}">Request another mail</a>.`,
};

/** The text for a link that is used, expired or incomplete. */
export function invalidLink(action: AccountAction, tenant: string): Html {
  return html`<p>The link was used before, has expired, or was not copied completely.</p>
<p>${remedies[action](tenant)}</p>`;
}

/** Title and text for a request that failed for a reason other than its fields. */
export function failure({ status, headers }: Problem): { title: string; body: Html } {
  const seconds = Number(headers['Retry-After'] ?? 0);
  const wait = seconds > 90 ? `${Math.ceil(seconds / 60)} minutes` : `${Math.max(seconds, 1)} seconds`;
  if (status === 429)
    return {
      title: 'Too many attempts',
      body: html`<p>There were too many attempts from your network. Wait ${wait}, then open the link again.</p>`,
    };
  const text =
    status >= 500
      ? 'The service cannot do this at the moment. Nothing was changed. Open the link again in a minute.'
      : 'The form arrived incomplete. Open the link of the mail again.';
  return { title: 'This did not work', body: html`<p>${text}</p>` };
}
