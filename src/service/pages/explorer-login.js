// Runs in the browser: the login of the explorer. Its tokens stay in memory, and a reload ends
// the session of the page.

/** The time before an access token expires from which on the next request gets a new one. */
const marginMs = 60_000;

/**
 * Logs in, and gets new tokens while the page is open.
 * @param onToken receives each new access token; undefined after the logout and at the end of
 *   the session
 */
export function createLogin(onToken) {
  let session;
  let refreshing;

  async function post(path, tenant, body, headers) {
    const response = await fetch(`/api/v1/auth/${path}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Tenant': tenant, ...headers },
      body: JSON.stringify(body),
    });
    const result = response.status === 204 ? undefined : await response.json();
    if (!response.ok) {
      const { code, challenge, methods, passkey } = result;
      const { status } = response;
      const wanted = challenge && { challenge, methods, passkey };
      throw Object.assign(new Error(wordsOf(result)), { status, code, wanted });
    }
    return result;
  }

  function keep(tenant, tokens) {
    session = tokens && {
      tenant,
      ...tokens,
      expiresAt: Date.now() + lifetimeMs(tokens.accessToken),
    };
    onToken(tokens?.accessToken);
    return tokens && claimsOf(tokens.accessToken).email;
  }

  async function refresh() {
    const { tenant, refreshToken } = session;
    try {
      keep(tenant, await post('refresh', tenant, { refreshToken }));
    } catch (error) {
      if (error.status === 401) keep(tenant, undefined);
    }
  }

  return {
    /**
     * @returns the address of the person
     * @throws {Error} with a message for the reader of the page, and with what the login needs
     *   beside the password in `wanted`: `challenge`, `methods`, and the options for `passkey`
     */
    async logIn(tenant, email, password) {
      return keep(tenant, await post('login', tenant, { email, password }));
    },
    /** Logs in with a passkey alone. @throws {Error} as `logIn` does */
    async logInByPasskey(tenant) {
      const passkey = await usePasskey(await post('login/passkey/options', tenant, {}));
      return keep(tenant, await post('login/passkey', tenant, { passkey }));
    },
    /** Completes a login by a code of an app. @throws {Error} as `logIn` does */
    async verify(tenant, { challenge }, code) {
      return keep(tenant, await post('login/verify', tenant, { challenge, code }));
    },
    /** Completes a login by a passkey. @throws {Error} as `logIn` does */
    async verifyByPasskey(tenant, { challenge, passkey: options }) {
      const passkey = await usePasskey(options);
      return keep(tenant, await post('login/verify', tenant, { challenge, passkey }));
    },
    async logOut() {
      const { tenant, accessToken } = session;
      keep(tenant, undefined);
      await post('logout', tenant, {}, { Authorization: `Bearer ${accessToken}` }).catch(() => {});
    },
    /** Replaces the access token of a request that is about to expire by a new one. */
    async renew(request) {
      if (!session || request.headers?.Authorization !== `Bearer ${session.accessToken}`) {
        return request;
      }
      if (Date.now() > session.expiresAt - marginMs) {
        refreshing ??= refresh().finally(() => (refreshing = undefined));
        await refreshing;
        if (session) request.headers.Authorization = `Bearer ${session.accessToken}`;
      }
      return request;
    },
  };
}

/** Returns the lifetime by the claims of the token, whatever the clock of this machine says. */
function lifetimeMs(token) {
  const { iat, exp } = claimsOf(token);
  return (exp - iat) * 1_000;
}

function claimsOf(token) {
  const bytes = atob(token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/'));
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes, byte => byte.charCodeAt(0))));
}

/**
 * Asks the browser for a passkey.
 * @throws {Error} with a message for the reader of the page
 */
async function usePasskey(options) {
  try {
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
    return (await navigator.credentials.get({ publicKey })).toJSON();
  } catch {
    throw Object.assign(new Error('No passkey was used.'), { code: 'invalid_passkey' });
  }
}

function wordsOf({ code, title, errors, methods, passkey }) {
  if (code === 'tenant_required') return 'There is no active tenant with this guid or slug.';
  if (code === 'second_factor_required') {
    if (methods.includes('totp')) return ''; // the field for its code says it
    return passkey
      ? 'Complete the login with your passkey.'
      : 'Your passkey does not work on this page.';
  }
  if (code === 'wrong_state') return 'Passkeys of this tenant do not work on this page.';
  if (code === 'second_factor_setup_required') {
    return 'Your role requires a second factor: set it up with your own front end first.';
  }
  if (code === 'rate_limited') return 'Too many logins. Wait some minutes, and try again.';
  const [field] = Object.entries(errors ?? {});
  return field ? `${field[0]} ${field[1][0]}.` : `${title}.`;
}

/**
 * A Swagger UI plugin: the form above the endpoints.
 * @param login as `createLogin` makes it
 */
export function loginBox(login) {
  return ({ React }) => {
    const { createElement: h, useState } = React;
    const field = (name, label, properties) =>
      h('label', { key: name }, label, h('input', { name, required: true, ...properties }));

    function LoginBox() {
      const [user, setUser] = useState('');
      const [error, setError] = useState('');
      const [isBusy, setBusy] = useState(false);
      const [wanted, setWanted] = useState();
      const [tenant, setTenant] = useState(
        new URLSearchParams(location.search).get('tenant') ?? '',
      );
      async function attempt(logIn) {
        setBusy(true);
        try {
          setUser(await logIn(tenant.trim()));
          setError('');
          setWanted(undefined);
        } catch (error) {
          setError(error.message);
          // a wrong proof may be sent again; any other refusal begins anew
          const isWrong = ['invalid_code', 'invalid_passkey'].includes(error.code);
          if (error.wanted || !isWrong) setWanted(error.wanted);
        }
        setBusy(false);
      }
      function submit(event) {
        event.preventDefault();
        const { email, password, code } = Object.fromEntries(new FormData(event.target));
        return attempt(tenant =>
          code === undefined
            ? login.logIn(tenant, email, password)
            : login.verify(tenant, wanted, code.replace(/\s/g, '')),
        );
      }
      function usePasskeyOf({ target }) {
        if (!target.form.elements.tenant.reportValidity()) return undefined;
        return attempt(tenant =>
          wanted?.passkey ? login.verifyByPasskey(tenant, wanted) : login.logInByPasskey(tenant),
        );
      }
      async function logOut() {
        setUser('');
        await login.logOut();
      }
      if (user) {
        return h(
          'div',
          { className: 'login', role: 'status' },
          h(
            'p',
            null,
            'Logged in as ',
            h('strong', null, user),
            '. All requests below carry the access token.',
          ),
          h('button', { type: 'button', className: 'btn', onClick: logOut }, 'Log out'),
        );
      }
      return h(
        'form',
        { className: 'login', onSubmit: submit },
        field('tenant', 'Tenant', {
          value: tenant,
          onChange: ({ target }) => setTenant(target.value),
          autoComplete: 'off',
        }),
        field('email', 'E-mail', { type: 'email', autoComplete: 'username' }),
        field('password', 'Password', { type: 'password', autoComplete: 'current-password' }),
        wanted?.methods.includes('totp') &&
          field('code', 'Code of your app', {
            inputMode: 'numeric',
            autoComplete: 'one-time-code',
            autoFocus: true,
          }),
        h('button', { className: 'btn execute', disabled: isBusy }, 'Log in'),
        'PublicKeyCredential' in window &&
          h(
            'button',
            { type: 'button', className: 'btn', disabled: isBusy, onClick: usePasskeyOf },
            'Use a passkey',
          ),
        h('p', { role: 'alert' }, error),
        tenant &&
          h('a', { href: `/reset?tenant=${encodeURIComponent(tenant)}` }, 'Forgot your password?'),
      );
    }
    return { components: { LoginBox } };
  };
}
