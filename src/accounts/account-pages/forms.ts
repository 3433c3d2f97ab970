import { type Html, html } from '../../lib/html/html.ts';
import type { AccountAction } from '../mails/account-link.ts';

/** The mistakes of a form, in words, by the name of its field. */
export type FormErrors = Readonly<Record<string, string>>;

/** The link with which the page was opened. */
export interface Link {
  readonly action: AccountAction;
  readonly tenant: string;
  readonly token: string;
}

interface Field {
  readonly name: string;
  readonly label: string;
  readonly type: 'email' | 'password';
  readonly autocomplete: string;
  readonly hint?: string;
}

const passwordFields = (minLength: number): readonly Field[] => [
  {
    name: 'password',
    label: 'New password',
    type: 'password',
    autocomplete: 'new-password',
    hint: `At least ${minLength} characters. A few unrelated words make a good password.`,
  },
  {
    name: 'repeated',
    label: 'The same password again',
    type: 'password',
    autocomplete: 'new-password',
  },
];
const emailField: Field = {
  name: 'email',
  label: 'E-mail address',
  type: 'email',
  autocomplete: 'username',
};

/**
 * The form that sets a password. The address is hidden in it for password managers.
 * @param minLength of the password
 */
export function passwordForm(
  link: Link,
  email: string,
  minLength: number,
  errors: FormErrors,
): Html {
  return html`<p>For <strong>${email}</strong></p>
<form method="post" action="${link.action}">
${hiddenFields(link)}<input type="email" name="email" value="${email}" autocomplete="username" readonly hidden>
${fieldList(passwordFields(minLength), errors)}
<button>Set the password</button>
</form>`;
}

/**
 * The form that confirms an address. Mail scanners open links, and some press the buttons that
 * they find: so the person types the address, which the page does not show.
 */
export function confirmForm(link: Link, errors: FormErrors): Html {
  return html`<p>Enter the address that the mail was sent to. Then you can log in.</p>
<form method="post" action="confirm">
${hiddenFields(link)}${fieldList([emailField], errors)}
<button>Confirm the address</button>
</form>`;
}

/** The form that requests a mail for a new password. */
export function requestForm(tenant: string, errors: FormErrors, email: string): Html {
  return html`<p>Enter your address. If you have an account here, a mail with a link arrives within minutes.</p>
<form method="post" action="reset">
<input type="hidden" name="tenant" value="${tenant}">
${fieldList([emailField], errors, email)}
<button>Send the mail</button>
</form>`;
}

function hiddenFields({ tenant, token }: Link): Html {
  return html`<input type="hidden" name="tenant" value="${tenant}">
<input type="hidden" name="token" value="${token}">
`;
}

/**
 * Returns the fields of a form. The first field, or the first one with an error, has the focus.
 */
function fieldList(fields: readonly Field[], errors: FormErrors, value?: string): Html {
  const focused = fields.find(({ name }) => errors[name]) ?? fields[0];
  return html`${fields.map(field => fieldRow(field, errors[field.name], field === focused, value))}`;
}

function fieldRow(
  { name, label, type, autocomplete, hint }: Field,
  error: string | undefined,
  isFocused: boolean,
  value?: string,
): Html {
  const described = [hint && `${name}-hint`, error && `${name}-error`].filter(Boolean).join(' ');
  return html`<p class="field"><label for="${name}">${label}</label>
<input id="${name}" name="${name}" type="${type}" autocomplete="${autocomplete}" required${
    value ? html` value="${value}"` : ''
  }${described ? html` aria-describedby="${described}"` : ''}${error ? html` aria-invalid="true"` : ''}${
    isFocused ? html` autofocus` : ''
  }>
${error ? html`<span class="error" id="${name}-error">${error}</span>` : ''}
${hint ? html`<span class="hint" id="${name}-hint">${hint}</span>` : ''}</p>`;
}
