import { userInfo } from 'node:os';
import { encodeHint, urlFault } from './url-text.ts';

/** The parts of a URL of a PostgreSQL server. */
export interface PostgresUrl {
  /**
   * A name or an address; for a Unix socket the folder of the socket, which begins with a
   * slash.
   */
  readonly host: string;
  /** The port; undefined: the default of PostgreSQL, 5432. */
  readonly port: number | undefined;
  /** The login role; undefined: the URL has no login. */
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly database: string;
  /**
   * The parameters that a connection heeds: TLS, and `options`, which are for a provider's
   * proxy.
   */
  readonly parameters: Readonly<Record<string, string>>;
}

/**
 * A text is not a usable URL of a PostgreSQL server. The message continues a sentence that
 * begins with the name of the setting, and says what to do. It has no part of the text, which
 * may hold a password.
 */
export class PostgresUrlError extends Error {
  override name = 'PostgresUrlError';
}

const sslModes = ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full'];

/**
 * The parameters that are kept. The settings that sessions need are made by statements
 * (`SessionClient`), whatever a URL says.
 */
const kept: Readonly<Record<string, RegExp>> = {
  sslmode: new RegExp(`^(${sslModes.join('|')})$`),
  sslcert: /./,
  sslkey: /./,
  sslrootcert: /./,
  sslnegotiation: /^(postgres|direct)$/,
  uselibpqcompat: /^(true|false)$/,
  options: /./,
};

/** Spellings of `sslmode` that some drivers have. */
const ssl: Readonly<Record<string, string>> = {
  true: 'verify-full',
  '1': 'verify-full',
  false: 'disable',
  '0': 'disable',
  'no-verify': 'no-verify',
};

/**
 * Parameters of libpq that name another server, another login or other conditions of TLS. They
 * are refused: the connection without them would not be the one that the URL asks for. All
 * other parameters are for other drivers, and have no effect.
 */
const refused = [
  'hostaddr',
  'service',
  'passfile',
  'replication',
  'requirepeer',
  'sslcrl',
  'sslcrldir',
  'sslpassword',
];

/**
 * Reads a URL as libpq does: with a Unix socket (`?host=/run/postgresql`, or
 * `%2Frun%2Fpostgresql` as the host), with the login before the host or in parameters, and with
 * the parameters that providers print.
 * @throws {PostgresUrlError}
 */
export function parsePostgresUrl(text: string): PostgresUrl {
  const fault = urlFault(text, ['postgresql://', 'postgres://']);
  if (fault) throw new PostgresUrlError(fault);

  const [, authority = '', path = '', query = ''] =
    /^[^:]*:\/\/([^/?]*)(?:\/([^?]*))?(?:\?(.*))?$/.exec(text) ?? [];
  const parameters = readParameters(query);
  const { login, address } = splitAuthority(authority);
  const [user, password] = splitAt(login, ':').map(decodeURIComponent);
  const [name, ownPort] = splitPort(address);
  const host = parameters.get('host') || decodeURIComponent(name);
  const port = parameters.get('port') || ownPort;
  const database = parameters.get('dbname') || decodeURIComponent(path);

  if (/,/.test(host + port)) {
    throw new PostgresUrlError(
      'names several hosts: give one address that leads to the primary, such as that of a proxy or a service',
    );
  }
  if (!host.startsWith('/') && /[/@]/.test(host)) {
    throw new PostgresUrlError(`has no host: ${encodeHint}`);
  }
  if (port && !isPort(port)) {
    throw new PostgresUrlError(`has a port that is not a number: ${encodeHint}`);
  }
  if (/[/@]/.test(path)) {
    throw new PostgresUrlError(`has a / or @ in the name of its database: ${encodeHint}`);
  }
  if (Buffer.byteLength(database) > 63) {
    throw new PostgresUrlError('has a name of a database with more than 63 bytes');
  }

  return {
    host,
    port: port ? Number(port) : undefined,
    user: parameters.get('user') || user || undefined,
    password: parameters.get('password') || password || undefined,
    database,
    parameters: Object.fromEntries([...parameters].filter(([parameter]) => kept[parameter])),
  };
}

/**
 * Returns the one spelling of a URL that both the programs of PostgreSQL and WHATWG's parser of
 * URLs accept.
 */
export function formatPostgresUrl({
  host,
  port,
  user,
  password,
  database,
  parameters,
}: PostgresUrl): string {
  const isSocket = host.startsWith('/');
  const query = new URLSearchParams();
  let authority = '';

  if (isSocket) {
    // A login before an empty host is no URL for WHATWG.
    for (const [name, value] of Object.entries({ host, port, user, password })) {
      if (value !== undefined) query.set(name, String(value));
    }
  } else {
    const login = [user, password].filter(part => part !== undefined).map(encode);
    const name = host.includes(':') ? `[${host}]` : encode(host);
    authority = `${login.length > 0 ? `${login.join(':')}@` : ''}${name}${port === undefined ? '' : `:${port}`}`;
  }
  for (const [name, value] of Object.entries(parameters)) query.set(name, value);

  // A plus sign is a space for forms only; the folder of a socket is read by people, too.
  const text = query.toString().replaceAll('+', '%20').replaceAll('%2F', '/');
  return `postgresql://${authority}/${encode(database)}${text && `?${text}`}`;
}

/**
 * Reads a URL that somebody has given, and returns its one spelling.
 * @throws {PostgresUrlError} when it cannot be used, or lacks the host, the login or the
 *   database
 */
export function normalPostgresUrl(text: string): string {
  const url = parsePostgresUrl(text);
  if (!url.host) {
    throw new PostgresUrlError(
      'names no host: write one before the /, or ?host=/run/postgresql for a Unix socket',
    );
  }
  if (!url.database) {
    throw new PostgresUrlError('names no database: write one after the host, such as /backoffice');
  }
  const user = url.user ?? ownLogin();
  if (!user) {
    throw new PostgresUrlError(
      'names no login: write one before the host, as postgresql://login:password@host',
    );
  }

  return formatPostgresUrl({ ...url, user });
}

/**
 * Returns the name of the user of this process, which is the default login on a Unix socket;
 * undefined for a user id without a name.
 */
function ownLogin(): string | undefined {
  try {
    return userInfo().username;
  } catch {
    return undefined;
  }
}

/**
 * @throws {PostgresUrlError} for a parameter that is not supported, or a value that its
 *   parameter does not have
 */
function readParameters(query: string): Map<string, string> {
  const parameters = new Map<string, string>();

  for (const pair of query.split('&').filter(Boolean)) {
    const [name, value = ''] = splitAt(pair, '=').map(decodeURIComponent);
    if (name) parameters.set(name, value);
  }

  for (const [name, value] of parameters) {
    if (refused.includes(name)) {
      throw new PostgresUrlError(`has the parameter ${name}, which is not supported: remove it`);
    }
    const values = kept[name];
    if (values && !values.test(value)) {
      const words =
        name === 'sslmode' ? `one of ${sslModes.join(', ')}` : 'a value that PostgreSQL knows';
      throw new PostgresUrlError(`has the parameter ${name}, which must be ${words}`);
    }
  }

  const mode = ssl[parameters.get('ssl') ?? ''];
  if (mode && !parameters.has('sslmode')) parameters.set('sslmode', mode);
  return parameters;
}

/**
 * Splits login and address. A password may have an unescaped @ in it: the last one ends the
 * login.
 */
function splitAuthority(authority: string): { login: string; address: string } {
  const end = authority.lastIndexOf('@');
  return { login: authority.slice(0, Math.max(end, 0)), address: authority.slice(end + 1) };
}

/** Splits host and port; the host of IPv6 stands in brackets. */
function splitPort(address: string): [host: string, port: string] {
  const [, bracketed, rest] = /^\[([^\]]*)\](.*)$/.exec(address) ?? [];
  if (bracketed !== undefined) return [bracketed, (rest ?? '').replace(/^:/, '')];
  const [host = '', port = ''] = splitAt(address, ':');
  return [host, port];
}

function splitAt(text: string, separator: string): string[] {
  const index = text.indexOf(separator);
  return index < 0 ? [text] : [text.slice(0, index), text.slice(index + 1)];
}

function isPort(text: string): boolean {
  return /^\d{1,5}$/.test(text) && Number(text) > 0 && Number(text) <= 65_535;
}

/**
 * Encodes a text as `encodeURIComponent` does, and also the characters that a shell or a parser
 * of URLs may misread.
 */
function encode(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    letter => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
