import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { maxBytesField } from '../backup/restore/max-bytes.ts';
import { type Context, defineOperation, type Plan } from '../command/operation.ts';
import {
  amount,
  flag,
  option,
  optionalArgument,
  type Values,
} from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { observeRun } from '../databases/verbs/move-results.ts';
import { restoredOperations } from '../databases/verbs/restored-database.command.ts';
import { readTenant } from '../registry/read-tenants.ts';
import { findTenant } from '../registry/tenants.ts';
import { chooseData, fromField, restoreData, untilField, withoutMacField } from './restore-data.ts';

const fields = {
  slug: optionalArgument('slug', { neededUnless: 'lost' }),
  archive: option(
    '<name>',
    'the archive to restore, or a part of its name; latest: the newest one',
    {
      kind: 'archive',
      unless: ['from'],
    },
  ),
  from: fromField,
  until: untilField,
  withoutMac: withoutMacField,
  maxBytes: maxBytesField,
  lost: flag(
    'the server has lost the database of the tenant: restore it in a new one, and serve it',
    {
      label: 'Its database is lost',
      isAdvanced: true,
    },
  ),
  server: option('<name>', 'with --lost: every tenant of this server whose database is lost', {
    label: 'All of a server',
    kind: 'server',
    isAdvanced: true,
  }),
  all: flag('with --lost: every tenant whose database is lost', { isAdvanced: true }),
  concurrency: amount('tenants', 'with --server or --all: tenants restored at the same time', {
    label: 'At the same time',
    default: 4,
    isAdvanced: true,
  }),
};
type RestoreFields = Values<typeof fields>;
type OneTenant = RestoreFields & { slug: string };

const restore = defineOperation({
  name: 'restore',
  help: {
    description:
      'restore earlier data of a tenant beside the present ones, or in place of a lost database',
    examples: [
      'restore acme --archive latest # its newest archive, beside its present data',
      'restore acme --archive 20261121T1405 # an older archive: backup list acme',
      'restore acme --from --until 2026-11-21T14:05:00Z < url-file # its data on a copy of its server that you have recovered to that time',
      'restore acme --lost # its database is lost: put its newest archive in place',
      'restore --lost --server second # those of all tenants of a server that is new and empty',
    ],
    more: `The restored data lies in a database of the tenant that nobody uses. restore diff then shows what was added, changed
and removed since, restore swap puts the restored data in place, and restore back undoes that. Who wants to look at it
over HTTP clones it: bin/backoffice clone acme acme-old --archive latest. It is dropped with: databases drop acme <database>.`,
    json:
      'print one document on stdout; with --server or --all JSON lines: each tenant, and at the ' +
      'end the counts',
  },
  fields,
  effect: 'changes',
  handling: {
    isTraced: true,
    opensArchives: ({ archive, from, lost }) =>
      archive !== undefined || (lost && from === undefined),
  },
  async plan(values, { installation }) {
    const { slug, server } = values;
    requireOneScope(values);
    if (slug === undefined) {
      const { planLostFleet } = await import('./restore-lost-tenants.ts');
      return planLostFleet(installation, server);
    }
    return planOne({ ...values, slug }, installation);
  },
  async run(values, { installation, ...context }) {
    const { slug } = values;
    requireOneScope(values);
    if (slug === undefined) {
      const { restoreLostFleet } = await import('./restore-lost-tenants.ts');
      return restoreLostFleet(values, { installation, ...context });
    }
    return restoreOne({ ...values, slug }, { installation, ...context });
  },
});

/**
 * @throws {OperatorError} unless the fields name a tenant and its earlier data, or the lost ones
 *   of a server or of all, and no data of one
 */
function requireOneScope({ slug, archive, from, lost, server, all }: RestoreFields): void {
  const isFleet = server !== undefined || all;

  if (isFleet && !lost) {
    throw new OperatorError('Give --server and --all together with --lost', { usage: true });
  }
  if (isFleet && slug !== undefined) {
    throw new OperatorError('Give either a tenant, or --server or --all', { usage: true });
  }
  if (isFleet && (archive !== undefined || from !== undefined)) {
    throw new OperatorError('Give --archive and --from together with a tenant', { usage: true });
  }

  if (slug === undefined && all === (server !== undefined)) {
    throw new OperatorError('Name a tenant, or give --lost with either --server or --all', {
      usage: true,
    });
  }
  if (!lost && archive === undefined && from === undefined) {
    throw new OperatorError(
      `Say which data: --archive latest, another archive, --from, or --lost. To serve a deleted tenant again: bin/backoffice undelete ${slug}`,
      { usage: true },
    );
  }
}

const goalOf = ({ lost }: Pick<RestoreFields, 'lost'>) => (lost ? 'replace' : 'place');

async function planOne({ slug, ...moment }: OneTenant, installation: Installation): Promise<Plan> {
  const { requireRestorableTenant } = await import('../databases/verbs/restored-databases.ts');
  const source = await findTenant(installation, slug);
  await requireRestorableTenant(installation, source, goalOf(moment));
  const { description: restoredFrom, time } = await chooseData(installation, source, moment, {
    onStep: () => {},
    warn: () => {},
  });
  const { planRoom, roomText } = await import('../databases/copy/room.ts');
  const room = await planRoom(installation, source, source.server, { mayBeShort: moment.lost });
  const { readLimitedUsers, withLaterEntity, withoutEntityText } = await import(
    '../databases/copy/users-without-entity.ts'
  );
  const users = await withConnection(installation.controlUrl, client =>
    readLimitedUsers(client, source.id),
  );
  const withoutEntity = moment.lost && time ? withLaterEntity(users.get(source.id), time) : [];
  const place = moment.lost ? 'in place of its lost database' : 'beside its present data';

  return {
    document: { slug, restoredFrom, lost: moment.lost, withoutEntity, room, state: 'planned' },
    text: () =>
      `${slug} would get data ${place}, from ${restoredFrom}.${withoutEntityText(withoutEntity)}` +
      (room ? ` ${roomText(room)}` : ''),
  };
}

async function restoreOne({ slug, ...values }: OneTenant, context: Context) {
  const { installation, output, progress } = context;
  const { requireRestorableTenant, restoreDatabase } = await import(
    '../databases/verbs/restored-databases.ts'
  );
  const source = await findTenant(installation, slug);
  await requireRestorableTenant(installation, source, goalOf(values));
  const { restored, ...facts } = await restoreData(
    installation,
    source,
    values,
    { progress, output },
    data => restoreDatabase(installation, slug, data, goalOf(values), observeRun(context)),
  );

  const { database, server } = restored;
  const document = values.lost
    ? { ...(await readTenant(installation, slug)), ...facts }
    : { slug, database, server: server.name, ...facts };
  const next = values.lost
    ? []
    : ['', `Compare it with the present data: bin/backoffice restore diff ${slug}`];
  output.result(document, () => [fieldsText(document), ...next].join('\n'));
}

export const operations = [restore, ...restoredOperations];
