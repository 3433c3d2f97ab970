import { backupSettings } from './backup-settings.ts';
import type { Client } from './client.ts';
import { startScript } from './command-line.ts';
import { killedRestore, pauseRun } from './paused-run.ts';
import { runCommand } from './run-command.ts';
import { useServerFolder } from './server-folder.ts';
import { backUp, succeed } from './succeed.ts';
import { laterObject, use } from './use.ts';
import { createWorld, useLogin } from './world.ts';

const path = '/api/v1/EntityStatus';
/** Well below the lifetime of an access token. */
const maxLoginMs = 5 * 60_000;

/**
 * Makes a world whose tenant acme has a restored database beside its own. Both have the status
 * `restored`, and only its own has the status `later`.
 */
export function useRestoredTenant() {
  const archives = useServerFolder('archives');
  const world = use(async () =>
    createWorld({ ACQUIRE_TIMEOUT_MS: '2000', ...(await backupSettings(archives)) }),
  );
  let client: Client;
  let loggedInAt = 0;
  const acme = laterObject(() => client);
  const globex = useLogin(world, 'globex');
  const command = (...args: string[]) =>
    runCommand('scripts/tenant.ts', [...args, '--json'], world.environment);
  const run = (...args: string[]) => succeed(world.environment, 'tenant', [...args, '--json']);
  /** Returns the status of the response. */
  const post = async (Title: string): Promise<number> => (await acme.post(path, { Title })).status;

  async function login(): Promise<void> {
    client = await world.login(world.acme);
    loggedInAt = Date.now();
  }

  before(async () => {
    await login();
    await post('restored');
    await backUp(world.environment);
    await run('restore', 'acme', '--archive', 'latest');
    await post('later');
  });
  // A drill can last longer than an access token.
  beforeEach(async () => {
    if (Date.now() - loggedInAt > maxLoginMs) await login();
  });

  return {
    world,
    globex,
    command,
    run,
    post,
    /**
     * Returns the titles of the statuses that a tenant has; one text with the status of the
     * response if it fails.
     */
    titles: async (client: Client = acme): Promise<string[]> => {
      const { status, body } = await client.get(path, { 'Cache-Control': 'no-cache' });
      return status === 200
        ? body.map(({ Title }: { Title: string }) => Title)
        : [`status ${status}`];
    },
    /** Returns what `doctor` finds wrong with acme: the names of the checks. */
    checks: async (): Promise<string[]> =>
      JSON.parse((await command('doctor')).stdout)
        .findings.filter(({ tenant }: { tenant: string | null }) => tenant?.startsWith('acme'))
        .map(({ check }: { check: string }) => check),
    /** Runs a restore until it kills its process before this step: see `killed-restore.ts`. */
    killBefore: (kind: string, step: string) =>
      startScript(killedRestore, [kind, 'acme', step], world.environment).ended,
    pause: (kind: string, step: string, slug = 'acme') =>
      pauseRun(world, world.environment, [kind, slug, step]),
  };
}
