import { randomUUID } from 'node:crypto';
import { type Html, html } from '../../lib/html/html.ts';
import type { Tone } from '../command/state-tone.ts';
import type { TenantSummary, TenantWithHealth } from '../registry/read-tenants.ts';
import type { HealthReason } from '../registry/tenant-health.ts';
import { transitionsFrom } from '../registry/transitions.ts';
import { linkCommands } from './command-line.ts';
import type { PageRequest } from './console-page.ts';
import { state, time } from './format.ts';
import { hiddenInputs, operationLink, operationPath, tenantPath, withQuery } from './links.ts';
import type { Offer } from './offered.ts';

/**
 * The decision about a tenant, as a word. `active` has no colour, because green is for health.
 */
export function decided({ status, isolated }: Pick<TenantSummary, 'status' | 'isolated'>): Html {
  return html`${status === 'active' ? status : state(status)}${isolated ? ', isolated' : ''}`;
}

/** Returns the health of a tenant for a list: with the worst reason if it is not well. */
export function healthCell({
  slug,
  health,
  reasons,
}: Pick<TenantWithHealth, 'slug' | 'health' | 'reasons'>): Html {
  const [worst, ...others] = reasons.filter(({ severity }) => severity !== 'unchecked');
  if (!worst) return state(health);

  const more = others.length > 0 ? `, and ${others.length} more` : '';
  return html`${state(health)} <a href="${tenantPath(slug)}#health">${worst.text}</a>${more}`;
}

const tones: Readonly<Record<HealthReason['severity'], Tone>> = {
  error: 'bad',
  warning: 'warn',
  unchecked: 'off',
  done: 'off',
};

const words: Readonly<Record<HealthReason['severity'], string>> = {
  error: 'error',
  warning: 'warning',
  unchecked: 'not checked yet',
  done: 'done since, not checked again',
};

/**
 * Shows the severity of a reason; or that its remedy was carried out, and nobody has checked
 * since.
 */
export function severity(of: HealthReason['severity']): Html {
  return state(words[of], tones[of]);
}

/** A reason with its remedy. */
export function reasonView(
  { severity: is, text, since, remedy, finding }: HealthReason,
  offered: Offer,
): Html {
  const more = finding
    ? html` <a href="${withQuery('/findings', { id: finding })}#${finding}">As a finding</a>`
    : '';

  return html`<li>${severity(is)} ${text}${since ? html`, since ${time(since)}` : ''}
<p class="hint">${linkCommands(remedy, offered)}${more}</p></li>`;
}

/**
 * A button that lets doctor look at everything now: it only reads, and its form has no field
 * that must be filled in. A console that may not run it shows its form, for the command.
 */
export function checkNowButton({ offered, tokenOf }: PageRequest): Html {
  const { operation, isAllowed } = offered.get('doctor') ?? {};
  if (!operation || !isAllowed) return operationLink('doctor', 'Check now');

  const path = operationPath('doctor');
  const reason = operation.fields.reason?.isRequired ? 'to see whether all is well' : undefined;
  return html`<form method="post" action="${path}" class="inline">${hiddenInputs({ token: tokenOf(path), form: randomUUID(), step: 'run', reason })}<button>Check now</button></form>`;
}

/** Returns links to the decisions that a tenant's state allows and that destroy nothing. */
export function verbs(tenant: TenantSummary, offered: Offer): Html[] {
  const { slug, status, isolated } = tenant;
  const names = transitionsFrom(status).filter(name => !destroys(name, offered));
  const links = names.map(name => operationLink(name, labels[name] ?? name, { slug }));
  const isOver = status === 'deleted' || status === 'provisioning';
  const isolation = isolated
    ? operationLink('isolate', 'End the isolation', { slug, off: 'on' })
    : operationLink('isolate', 'Isolate', { slug });

  return isOver ? links : [...links, isolation];
}

/** Returns links to the decisions that destroy something of a tenant in its state. */
export function destructiveVerbs({ slug, status }: TenantSummary, offered: Offer): Html[] {
  const isOver = status === 'deleted' || status === 'provisioning';
  const names = [
    ...transitionsFrom(status).filter(name => destroys(name, offered)),
    ...(isOver ? ['purge'] : []),
  ];

  return names.map(name => operationLink(name, labels[name] ?? name, { slug }));
}

const destroys = (name: string, offered: Offer): boolean =>
  offered.get(name)?.operation.effect === 'destroys';

/** The texts of the links to decisions. */
const labels: Readonly<Record<string, string>> = {
  suspend: 'Suspend',
  resume: 'Resume',
  delete: 'Delete',
  undelete: 'Undelete: serve it again',
  purge: 'Purge: remove it for good',
};
