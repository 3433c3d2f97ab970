import { OperatorError } from '../../lib/log/operator-error.ts';
import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import { defineOperation } from '../command/operation.ts';
import { amount, argument, option, parsePositive, secret } from '../command/operation-fields.ts';
import { tableText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import {
  moveFields,
  moveInterrupt,
  moveJson,
  moveRequest,
  observeMoves,
} from '../databases/verbs/move-results.ts';
import type { PlannedDrain } from './drain-server.ts';
import { removeServerOperation } from './server-remove.command.ts';

const diskDescription =
  'size of the disk of the server, with which every copy of a database is compared';
const diskField = { label: 'Size of its disk', isAdvanced: true };

const add = defineChange({
  name: 'server add',
  help: {
    description: 'add a PostgreSQL server, or change its URL',
    examples: ['server add second --capacity 500 --disk-gb 200 < url-file'],
  },
  fields: {
    name: argument('text', { label: 'Name of the server' }),
    capacity: amount('tenants', 'maximum number of tenants that are placed there automatically', {
      parse: parseCapacity,
      otherwise: 'no limit',
    }),
    diskGb: amount('GiB', diskDescription, { ...diskField, parse: parsePositive }),
    url: secret('url', 'postgresql:// URL of the server'),
  },
  effect: 'changes',
  async change({ name, url: text, ...stated }, { installation, output }, isDryRun) {
    const { addServer } = await import('./add-server.ts');
    const { unverifiedHost, unverifiedText } = await import(
      '../../lib/postgres/unverified-host.ts'
    );

    const url = text.trim();
    const wasThere = await addServer(installation, name, url, stated, isDryRun);

    const host = unverifiedHost(url);
    if (host !== undefined) {
      output.warn(
        `${unverifiedText(host)}. Turn TLS on there, and add the server again with ` +
          `sslmode=verify-full in its URL: bin/backoffice server add ${name}`,
      );
    }

    return {
      document: { name, capacity: stated.capacity ?? null, diskGb: stated.diskGb ?? null },
      facts: { isThere: wasThere },
      plan: wasThere
        ? `The URL of ${name} would be changed.`
        : `${name} would be added. It can be used.`,
      done: wasThere
        ? `Changed the URL of ${name}.`
        : `Added ${name}. Tenants can now be placed on it.`,
    };
  },
});

const list = defineList({
  name: 'server list',
  help: {
    description: 'list the servers, with the tenants of each',
    examples: ['server list', 'server list -o wide'],
  },
  async items(_, { installation }) {
    const { listServers } = await import('../registry/read-servers.ts');
    return listServers(installation);
  },
  row: ({ capacity, diskGb, ...rest }) => ({
    ...rest,
    capacity: capacity ?? 'no limit',
    'disk, GiB': diskGb,
  }),
  nameOf: ({ name }) => name,
  empty: 'There is no server.',
});

const set = defineChange({
  name: 'server set',
  help: {
    description:
      'change how many tenants are placed on a server automatically, or the stated size of its disk',
    examples: [
      'server set second --capacity 500',
      'server set second --capacity none',
      'server set second --disk-gb 200',
    ],
  },
  fields: {
    name: argument('server', { label: 'Server' }),
    capacity: option('<tenants>', 'maximum number of tenants, or none for no limit', {
      kind: 'text',
      unit: 'tenants',
      parse: parseNumberOrNone(parseCapacity),
    }),
    diskGb: option('<GiB>', `${diskDescription}, or none for not stated`, {
      ...diskField,
      kind: 'text',
      unit: 'GiB',
      parse: parseNumberOrNone(parsePositive),
    }),
  },
  effect: 'changes',
  handling: { control: 'rows' },
  async change({ name, ...values }, { installation }, isDryRun) {
    const { setServer } = await import('../registry/read-servers.ts');
    const stated = {
      capacity: values.capacity === 'none' ? null : values.capacity,
      diskGb: values.diskGb === 'none' ? null : values.diskGb,
    };
    const { capacity, diskGb } = stated;
    if (capacity === undefined && diskGb === undefined) {
      throw new OperatorError('Give --capacity, --disk-gb, or both', { usage: true });
    }

    const before = await setServer(installation, name, stated, isDryRun);

    const lines = [
      capacity !== undefined && {
        plan: `${name} would take ${capacityText(capacity)}. Now it takes ${capacityText(before.capacity)}.`,
        done: `${name} takes ${capacityText(capacity)}.`,
      },
      diskGb !== undefined && {
        plan: `The disk of ${name} would have ${diskText(diskGb)}. Now it has ${diskText(before.diskGb)}.`,
        done: `The disk of ${name} has ${diskText(diskGb)}.`,
      },
    ].filter(line => line !== false);
    return {
      document: {
        name,
        ...(capacity !== undefined && { capacity }),
        ...(diskGb !== undefined && { diskGb }),
      },
      facts: {
        ...(capacity !== undefined && { before: before.capacity }),
        ...(diskGb !== undefined && { diskBefore: before.diskGb }),
      },
      plan: lines.map(({ plan }) => plan).join(' '),
      done: lines.map(({ done }) => done).join(' '),
    };
  },
});

const drain = defineOperation({
  name: 'server drain',
  help: {
    description: 'move every tenant of a server to the others; goes on after failures',
    examples: [
      'server drain second --dry-run',
      'server drain second',
      'server drain second --to third',
    ],
    json: moveJson,
  },
  fields: {
    name: argument('server', { label: 'Server' }),
    to: option('<server>', 'move all of them to this server', {
      label: 'To server',
      kind: 'server',
      otherwise: 'to those with the most room',
    }),
    ...moveFields,
  },
  effect: 'changes',
  handling: { isTraced: true, interrupt: moveInterrupt },
  async plan({ name, to, leaveSchemas }, { installation }) {
    const { planDrain, planDrained } = await import('./drain-server.ts');
    const moves = await planDrained(
      installation,
      await planDrain(installation, name, to),
      leaveSchemas,
    );
    return {
      document: moves,
      text: () => drainText(moves, `There is no tenant on ${name}.`),
      hasFailed: moves.some(({ error }) => error !== null),
    };
  },
  async run({ name, to, ...values }, context) {
    const { installation, output } = context;
    const { drainServer } = await import('./drain-server.ts');
    const onOutcome = (outcome: object): void => {
      if (output.wantsDocuments) output.part(outcome, () => '');
    };
    const outcomes = await observeMoves(context, observers =>
      drainServer(installation, name, { to, ...moveRequest(values) }, { ...observers, onOutcome }),
    );
    const rows = outcomes.toSorted((a, b) => Number(a.error !== null) - Number(b.error !== null));
    output.text(() => tableText(rows, `There is no tenant on ${name}.`));
    return outcomes.every(({ error }) => error === null);
  },
});

export const operations = [add, list, set, removeServerOperation, drain];

/** Formats the moves of a plan, and below them what stays in the old databases. */
function drainText(moves: readonly PlannedDrain[], whenEmpty: string): string {
  const isRefused = moves.some(({ error }) => error !== null);
  const rows = moves.map(({ slug, to, error }) => (isRefused ? { slug, to, error } : { slug, to }));
  const left = moves.filter(({ leaves }) => leaves.length > 0);
  return [
    tableText(rows, whenEmpty),
    ...left.map(({ slug, leaves }) => `${slug} leaves: ${leaves.join(', ')}.`),
  ].join('\n');
}

function capacityText(capacity: number | null): string {
  return capacity === null ? 'any number of tenants' : countText(capacity, 'tenant');
}

function diskText(diskGb: number | null): string {
  return diskGb === null ? 'no stated size' : `${diskGb} GiB`;
}

function parseCapacity(value: string): number {
  if (!/^\d{1,9}$/.test(value)) throw new OperatorError('Give a whole number.');
  return Number(value);
}

/** Returns a function that parses a number, or `none`. */
function parseNumberOrNone(parse: (value: string) => number) {
  return (value: string): number | 'none' => (value === 'none' ? value : parse(value));
}
