import { expect } from 'chai';
import { startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { use } from '../../support/use.ts';
import { controlSql, type World } from '../../support/world.ts';

/** The pages that only show something. */
export const pages = [
  '/',
  '/tenants',
  '/tenants?q=admin@acme.test',
  '/tenants/acme',
  '/migrations',
  '/recovery',
  '/recovery/acme',
  '/tenants/acme/commands',
  '/tenants?health=unwell',
  '/findings',
  '/capacity',
  '/log',
  '/operations',
];

/** A page or another response of the console. */
interface ConsoleResponse {
  readonly status: number;
  readonly text: string;
  readonly headers: Headers;
  /** Path of the page after the redirects. */
  readonly path: string;
}

/** A running `bin/backoffice console`, and a browser that has opened it. */
export interface OpenConsole {
  readonly origin: string;
  /** The printed address. */
  readonly url: string;
  /** The cookie of the session; empty for a team. */
  readonly cookie: string;
  readonly process: ReturnType<typeof startScript>['process'];
  get(path: string, headers?: Record<string, string>): Promise<ConsoleResponse>;
  /** Fills in a form of a page, with its token, and sends it. */
  submit(
    path: string,
    fields: Record<string, string>,
    headers?: Record<string, string>,
  ): Promise<ConsoleResponse>;
  /** Reads the events of a run until they end with it, and then its page. */
  ended(path: string): Promise<ConsoleResponse>;
  /**
   * Sends SIGTERM.
   * @returns the exit code
   */
  stop(): Promise<number | null>;
}

/**
 * Starts the console, and opens its address.
 * @param headers of every request, such as those of a proxy
 * @param script of another build
 */
export async function openConsole(
  environment: Record<string, string>,
  args: readonly string[] = [],
  headers: Record<string, string> = {},
  script = 'scripts/backoffice.ts',
): Promise<OpenConsole> {
  const { process, output, ended: exit } = startScript(script, ['console', ...args], environment);
  const printed = await eventually(() => {
    if (process.exitCode !== null) throw new Error(output.stderr);
    return /http:\/\/\S+[\w/]/.exec(output.stdout)?.[0];
  }, 180_000);
  const { origin } = new URL(printed);
  const start = printed.includes('token=') ? await fetch(printed) : undefined;
  const cookie = start?.headers.get('set-cookie')?.split(';')[0] ?? '';
  const request = async (path: string, more: RequestInit = {}): Promise<ConsoleResponse> => {
    const all = {
      ...(cookie && { Cookie: cookie }),
      ...headers,
      ...(more.headers as Record<string, string>),
    };
    const response = await fetch(origin + path, { redirect: 'manual', ...more, headers: all });
    const location = response.headers.get('location');
    if (location !== null) return request(location);
    return {
      status: response.status,
      text: await response.text(),
      headers: response.headers,
      path,
    };
  };
  const get: OpenConsole['get'] = (path, more = {}) => request(path, { headers: more });
  return {
    origin,
    url: printed,
    cookie,
    process,
    get,
    submit: async (path, fields, more = {}) => {
      const [page = ''] = path.split(/\/(?:perform|cancel)$/);
      const { text } = await get(page);
      const form = text.split('<form').find(each => each.includes(`action="${path}"`)) ?? '';
      const token = /name="token" value="([^"]+)"/.exec(form)?.[1] ?? '';
      const id = /name="form" value="([^"]+)"/.exec(form)?.[1];
      const body = new URLSearchParams({ token, ...(id && { form: id }), ...fields }).toString();
      const type = 'application/x-www-form-urlencoded';
      return request(path, {
        method: 'POST',
        body,
        headers: { 'Content-Type': type, Origin: origin, ...more },
      });
    },
    ended: async path => {
      const last = await eventually(async () => {
        const page = await get(path); // again and again, as a browser without script does
        const isRunning = page.text.includes('id="run"') && !page.text.includes('data-ended');
        return !isRunning && page;
      });
      if (!last.text.includes('data-ended')) throw new Error(`${path} is no run: ${last.text}`);
      return last;
    },
    stop: async () => {
      process.kill('SIGTERM');
      const { code, stderr } = await exit;
      expect(stderr).to.not.include('Warning');
      return code;
    },
  };
}

/**
 * Opens the console of a world before the tests of a `describe`, and stops it after them: see
 * `use`.
 */
export function useConsole(world: World): OpenConsole {
  return use(async () => {
    const opened = await openConsole(world.environment, ['--no-browser']);
    const close = async () => expect(await opened.stop()).to.equal(0);
    return { ...opened, close };
  });
}

/** Returns what the log of the operators has last. */
export async function lastAction(world: World) {
  const [row] = await controlSql<{ operator: string; command: string; reason: string | null }>(
    world,
    'select operator, command, reason from operator_actions order by id desc limit 1',
  );
  return row;
}
