import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import { defineOperation } from '../command/operation.ts';
import { option, parsePositive } from '../command/operation-fields.ts';
import { tableText } from '../command/text-table.ts';

/** Warm databases on each server. */
const defaultSize = 10;

const server = option('<name>', 'only those of this server', { kind: 'server' });

const fill = defineOperation({
  name: 'pool fill',
  description: 'make warm databases for new tenants, and drop those that no tenant of this build can use',
  fields: {
    size: option('<databases>', 'warm databases on each server', { parse: parsePositive, default: defaultSize }),
    server,
  },
  examples: ['pool fill --size 20'],
  effect: 'changes',
  isRoutine: true,
  async plan({ size, server: only }, { installation }) {
    const { listPool } = await import('./warm-pool.ts');
    const warm = await listPool(installation);
    const planned = (await chosenServers(installation, only)).map(({ name }) => {
      const here = warm.filter(({ server }) => server === name);
      const ready = here.filter(({ state }) => state === 'ready').length;
      return { server: name, ready, made: Math.max(0, size - ready), dropped: here.length - ready };
    });
    const rows = planned.map(({ made, dropped, ...row }) => ({ ...row, 'to make': made, 'to drop': dropped }));
    return { document: planned, text: () => tableText(rows, noServer) };
  },
  async run({ size, server: only }, { installation, output, progress }) {
    const { fillPool } = await import('./warm-pool.ts');
    progress.step('copying the template');
    const servers = await fillPool(installation, await chosenServers(installation, only), size);
    output.result(servers, () => tableText(servers, noServer));
    return servers.every(({ error }) => error === null);
  },
});

const list = defineList({
  name: 'pool list',
  description: 'list the warm databases',
  examples: ['pool list'],
  async items(_, { installation }) {
    const { listPool } = await import('./warm-pool.ts');
    return listPool(installation);
  },
  nameOf: ({ database }) => database,
  empty: 'The pool is empty. Fill it: npx backoffice pool fill',
});

const drain = defineChange({
  name: 'pool drain',
  description: 'drop the warm databases; new tenants take longer until the next pool fill',
  fields: { server },
  examples: ['pool drain --server second --dry-run', 'pool drain --server second'],
  effect: 'changes',
  async change({ server: only }, { installation }, isDryRun) {
    const { drainPool, listPool } = await import('./warm-pool.ts');
    const warm = await listPool(installation);
    const drained: { server: string; dropped: number }[] = [];
    for (const server of await chosenServers(installation, only)) {
      const found = warm.filter(each => each.server === server.name).length;
      drained.push({ server: server.name, dropped: isDryRun ? found : await drainPool(installation, server) });
    }
    const planned = drained.map(({ server, dropped }) => ({ server, 'to drop': dropped }));
    return { document: drained, plan: tableText(planned, noServer), done: tableText(drained, noServer) };
  },
});

const noServer = 'There is no server.';

export const operations = [fill, list, drain];

async function chosenServers(installation: Installation, name: string | undefined): Promise<Server[]> {
  const { Server } = await import('../../control/control-entities.ts');
  const { findServer } = await import('../tenants/servers.ts');
  if (name !== undefined) return [await findServer(installation, name)];
  return installation.control.em.fork().findAll(Server, { orderBy: { id: 'asc' } });
}
