import type { TenantRecord } from '../../control/records.ts';
import { type Html, html } from '../../lib/html/html.ts';
import { clientNetwork } from '../../lib/http/request/client-address.ts';
import { readEmail } from '../../lib/http/request/email.ts';
import { readForm } from '../../lib/http/request/read-form.ts';
import { isUuid } from '../../lib/http/request/uuid.ts';
import { type Problem, problem } from '../../lib/problems.ts';
import type { HttpContext, HttpMiddleware } from '../../lib/request-state.ts';
import { bindTenant } from '../../tenancy/bind-request.ts';
import type { ContextServices } from '../../tenancy/request-context.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { confirmRegistration } from '../auth/confirm-registration.ts';
import { hashRequester } from '../auth/hash-queue.ts';
import type { FailureLimit } from '../auth/limit-failures.ts';
import { accountWords, minPasswordLength } from '../auth/new-password.ts';
import { requestReset, setPasswordByLink } from '../auth/reset-password.ts';
import type { AccountAction } from '../mails/account-link.ts';
import type { LinkKind } from '../mails/mail-link.ts';
import { findLink, type SentLink } from '../mails/use-link.ts';
import { confirmForm, type FormErrors, passwordForm, requestForm } from './forms.ts';
import { failure, invalidLink, passwordErrors, titles } from './page-texts.ts';

interface AccountPageServices extends AuthServices, ContextServices {
  tokens: AuthServices['tokens'];
  directory: AuthServices['directory'];
  /** Limits the forms that are sent, as the routes of accounts are limited. */
  readonly limit: HttpMiddleware;
  /**
   * Runs the comparison of a password with that of an account, which counts as a login does.
   * @throws {Problem} `rate_limited`, when it must not be made
   */
  readonly comparePassword: FailureLimit['compare'];
  /** True if the explorer is among the pages of the service. */
  readonly hasExplorer: boolean;
}

/**
 * Allows only the style sheets of the service, and forms that are sent to it; no script at all.
 */
const contentSecurityPolicy =
  "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const actions: Record<string, AccountAction> = {
  '/accept': 'accept',
  '/confirm': 'confirm',
  '/reset': 'reset',
};

const linkKinds: Readonly<Record<AccountAction, LinkKind>> = {
  accept: 'invitation',
  confirm: 'registration',
  reset: 'reset',
};

/**
 * The pages that links in mails lead to, where no application has pages of its own: `/accept`,
 * `/confirm` and `/reset`, which also requests a mail. They need no script and no cookie: the
 * token of the mail is all that a form proves, so there is nothing that another site could use.
 * Opening a page changes nothing.
 */
export function accountPages(services: AccountPageServices): HttpMiddleware {
  const { limit } = services;
  return async function serveAccountPage(ctx, next) {
    const isRead = ctx.method === 'GET' || ctx.method === 'HEAD';
    const action = Object.hasOwn(actions, ctx.path) ? actions[ctx.path] : undefined;
    if (!action) return next();
    if (!isRead && ctx.method !== 'POST') {
      throw problem('method_not_allowed', { headers: { Allow: 'GET, HEAD, POST' } });
    }

    ctx.state.route = ctx.path;
    ctx.set('Content-Security-Policy', contentSecurityPolicy);
    ctx.state.renderProblem = (problem: Problem) =>
      accountPage({ ...failure(problem), isRefused: true });
    if (isRead) return show(ctx, action, new URLSearchParams(ctx.querystring), services);

    await limit(ctx, async () => act(ctx, action, await readForm(ctx), services));
  };
}

/** Shows the form of a link; without a token, the form that requests a mail. */
async function show(
  ctx: HttpContext,
  action: AccountAction,
  values: URLSearchParams,
  services: AccountPageServices,
  errors: FormErrors = {},
): Promise<void> {
  const [tenantGuid, token] = [values.get('tenant') ?? '', values.get('token') ?? ''];
  const isRefused = Object.keys(errors).length > 0;
  if (action === 'reset' && token === '') {
    const body = requestForm(tenantGuid, errors, values.get('email') ?? '');
    return send(ctx, { title: 'Forgot your password?', body, isRefused });
  }

  const tenant = await findTenant(tenantGuid, services);
  const holder =
    tenant &&
    (await findLink(services.control, services.secrets, tenant, [linkKinds[action]], token));
  if (!tenant || holder?.state !== 'good') return sendInvalid(ctx, action, tenantGuid, holder);

  const link = { action, tenant: tenantGuid, token };
  const body =
    action === 'confirm'
      ? confirmForm(link, errors)
      : passwordForm(link, holder.email, minLengthOf(services, holder), errors);
  send(ctx, { title: titles[action], tenantName: tenant.name, body, isRefused });
}

/** The minimum length of the password that a form sets, in code points. */
function minLengthOf(
  { passwordMinLength }: AccountPageServices,
  { hasFactor }: Pick<SentLink, 'hasFactor'>,
): number {
  return minPasswordLength(passwordMinLength, hasFactor);
}

/** Performs the action of a form. */
async function act(
  ctx: HttpContext,
  action: AccountAction,
  form: URLSearchParams,
  services: AccountPageServices,
): Promise<void> {
  const [tenantGuid, token] = [form.get('tenant') ?? '', form.get('token') ?? ''];
  const tenant = await findTenant(tenantGuid, services);
  if (!tenant) return sendInvalid(ctx, action, tenantGuid);
  bindTenant(ctx, tenant, services);
  if (action === 'reset' && token === '') return request(ctx, form, services);
  const link = await findLink(
    services.control,
    services.secrets,
    tenant,
    [linkKinds[action]],
    token,
  );
  if (!link) return sendInvalid(ctx, action, tenantGuid);
  if (action === 'confirm') return confirm(ctx, tenant, link, form, services);

  const password = form.get('password') ?? '';
  const rule = { minLength: minLengthOf(services, link), words: accountWords(link, tenant) };
  const errors =
    link.state === 'good' ? passwordErrors(password, form.get('repeated') ?? '', rule) : {};
  if (Object.keys(errors).length > 0) return show(ctx, action, form, services, errors);

  const isSet =
    link.state === 'good' &&
    (await setPasswordByLink(services, ctx.state.context, token, password));
  const now = isSet
    ? link
    : await findLink(services.control, services.secrets, tenant, [linkKinds[action]], token);
  if (!isSet && !(await wasJustSet(ctx, now, password, services))) {
    return sendInvalid(ctx, action, tenantGuid, now);
  }

  const text = html`You can log in with <strong>${link.email}</strong> and this password.`;
  sendDone(ctx, tenant, 'Your password is set', text, services);
}

/**
 * Confirms an address. A second press of the button gets the same page: this form has used the
 * link.
 */
async function confirm(
  ctx: HttpContext,
  tenant: TenantRecord,
  link: SentLink,
  form: URLSearchParams,
  services: AccountPageServices,
): Promise<void> {
  const { control, secrets } = services;
  const token = form.get('token') ?? '';
  if (readEmail(form.get('email') ?? '').address !== link.email) {
    return show(ctx, 'confirm', form, services, {
      email: 'This is not the address that the mail was sent to.',
    });
  }

  const { deadline, ipAddress } = ctx.state;
  const network = clientNetwork(ipAddress);
  const isConfirmed =
    link.state === 'good' &&
    (await confirmRegistration(services, tenant, token, network, deadline));
  const now = isConfirmed
    ? link
    : await findLink(control, secrets, tenant, ['registration'], token);
  const wasConfirmed = now?.state === 'used' && !now.isDisabled;
  if (!isConfirmed && !wasConfirmed) return sendInvalid(ctx, 'confirm', tenant.guid, now);

  const text = html`You can log in with <strong>${link.email}</strong> and your password.`;
  sendDone(ctx, tenant, 'Your address is confirmed', text, services);
}

/** The time in which a form that is sent again with the same password gets the success page. */
const repeatSeconds = 15 * 60;

/**
 * True if the link was used a moment ago to set this very password: the form was sent twice, by
 * a second press, or because the first response was lost. A password that something else has
 * set is not compared: the reader of an old mail must not learn it.
 */
async function wasJustSet(
  ctx: HttpContext,
  link: SentLink | undefined,
  password: string,
  { passwords, comparePassword }: AccountPageServices,
): Promise<boolean> {
  const setHash = link?.setHash ?? null;
  if (
    link?.state !== 'used' ||
    setHash === null ||
    link.isDisabled ||
    (link.usedSecondsAgo ?? repeatSeconds) >= repeatSeconds
  ) {
    return false;
  }

  return comparePassword(ctx, link.email, () =>
    passwords.verify(setHash, password, hashRequester(ctx.state.context)),
  );
}

/**
 * Sends a mail for a new password. The page is the same whether or not the address is known.
 */
async function request(
  ctx: HttpContext,
  form: URLSearchParams,
  services: AccountPageServices,
): Promise<void> {
  const email = readEmail(form.get('email') ?? '').address;
  if (email === undefined) {
    return show(ctx, 'reset', form, services, {
      email: 'This is not an e-mail address. It looks like nora@example.com.',
    });
  }

  await requestReset(services, ctx.state.context, email);
  const body = html`<p>If <strong>${email}</strong> has an account here, a mail with a link arrives within minutes. Look into
the folder for unwanted mail, too.</p>`;
  send(ctx, { title: 'Look into your mailbox', body });
}

async function findTenant(
  guid: string,
  { directory }: AccountPageServices,
): Promise<TenantRecord | undefined> {
  const tenant = isUuid(guid) ? await directory.tenant(guid) : undefined;
  return tenant?.status === 'active' ? tenant : undefined;
}

/** @param link undefined when the state of the link is not known */
function sendInvalid(
  ctx: HttpContext,
  action: AccountAction,
  tenantGuid: string,
  link?: SentLink,
): void {
  const body = invalidLink(action, tenantGuid, link);
  send(ctx, { title: 'This link does not work any more', body, isRefused: true });
}

function sendDone(
  ctx: HttpContext,
  tenant: TenantRecord,
  title: string,
  text: Html,
  { hasExplorer }: AccountPageServices,
): void {
  const explorer = html`<p class="quiet">For developers: <a href="swagger?tenant=${tenant.guid}">log in to the explorer</a>.</p>`;
  const body = html`<p role="status">${text}</p>\n${hasExplorer ? explorer : ''}`;
  send(ctx, { title, tenantName: tenant.name, body });
}

function send(ctx: HttpContext, page: AccountPage): void {
  ctx.status = page.isRefused ? 400 : 200;
  ctx.type = 'text/html; charset=utf-8';
  ctx.body = accountPage(page);
}

interface AccountPage {
  readonly title: string;
  /** The name of the tenant; undefined on pages that everybody can open. */
  readonly tenantName?: string | undefined;
  readonly body: Html;
  /** True if the form above was refused: a screen reader hears the title first. */
  readonly isRefused?: boolean;
}

/**
 * A complete HTML page in the style of the documentation, without a script. All addresses are
 * relative, so that the page works below the path of a proxy.
 */
function accountPage({ title, tenantName, body, isRefused = false }: AccountPage): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${isRefused ? 'Error: ' : ''}${title} – ${tenantName ?? 'Sales back office'}</title>
<link rel="stylesheet" href="css/base.css">
<link rel="stylesheet" href="css/account.css">
<link rel="icon" href="favicon.ico">
</head>
<body>
<header><div class="bar"><strong>${tenantName ?? 'Sales back office'}</strong></div></header>
<main><h1>${title}</h1>
${body}</main>
</body>
</html>
`.html;
}
