import { backupSettings } from '../../support/backup-settings.ts';
import { type CopiedServer, copyServer } from '../../support/copied-server.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp } from '../../support/succeed.ts';
import { laterObject, use } from '../../support/use.ts';

/**
 * Makes a server with the tenants acme and globex before the tests of a `describe`, and a
 * recovered server, which is a copy of it from before otto was disabled and paul was added.
 * The archives are from after that.
 */
export function useRecoveredServer() {
  const server = use(createDedicatedServer);
  const archives = useServerFolder('archives');
  let environment: Record<string, string>;
  let recovered: CopiedServer;

  const addCurrency = async (slug: string, code: string): Promise<void> =>
    void (await server.sql(
      `insert into currencies (code, name) values ('${code}', '${code}')`,
      await server.databaseOf(slug),
    ));

  before(async () => {
    environment = { ...server.environment, ...(await backupSettings(archives)) };
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    for (const code of ['EUR', 'CHF']) await addCurrency('acme', code);
    for (const code of ['USD', 'CHF']) await addCurrency('globex', code);
    for (const name of ['nora', 'otto']) await server.addMember('acme', name);
    recovered = await copyServer(server.url);
    await server.addMember('acme', 'paul');
    await server.control(`update users set disabled_at = now() where email = 'otto@acme.test'`);
    await backUp(environment);
  });
  after(() => recovered?.close());

  return {
    server,
    recovered: laterObject(() => recovered),
    addCurrency,
    /** Returns the settings of commands. */
    settings: () => environment,
    /** Runs `work` with the URL of a copy of the recovered server, which it may change. */
    withCopy: async (work: (url: string) => Promise<void>): Promise<void> => {
      const copy = await copyServer(recovered.url);
      try {
        await work(copy.url);
      } finally {
        await copy.close();
      }
    },
  };
}
