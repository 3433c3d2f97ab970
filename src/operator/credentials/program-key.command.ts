import { keyDays } from '../../control/key-lifetime.ts';
import { isUuid } from '../../lib/http/request/uuid.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import {
  amount,
  argument,
  option,
  optionalArgument,
  parsePositive,
} from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import { parseProgram, programText } from './program-text.ts';
import type { ProgramKeySummary } from './read-programs.ts';

const add = defineChange({
  name: 'program key add',
  help: {
    description: 'make a key of a program, which calls the API with it; it is shown only once',
    examples: [
      'program key add acme 12',
      'program key add acme 12 --days 90 --reason "key of the pipeline, ticket 4711"',
    ],
  },
  fields: {
    slug: argument('slug'),
    program: argument('program', { parse: parseProgram }),
    days: amount('days', `the time after which the key ends, at most ${keyDays.max} days`, {
      label: 'Ends after',
      default: keyDays.default,
      parse: parseDays,
    }),
  },
  effect: 'changes',
  handling: { control: 'rows' },
  async change({ slug, program: programId, days }, { installation, output }, isDryRun) {
    const { addKeyTo } = await import('./programs.ts');
    const { program, isIsolated, ...key } = await addKeyTo(
      installation,
      slug,
      programId,
      days,
      isDryRun,
    );
    const name = programText(program);

    if (program.state === 'disabled' && !isDryRun) {
      output.warn(
        `Program ${name} is disabled. Accept its keys: bin/backoffice program enable ${slug} ${programId}`,
      );
    }
    if (isIsolated && !isDryRun) {
      output.warn(
        `${slug} is isolated: its keys are refused. Accept them: bin/backoffice isolate ${slug} --off`,
      );
    }

    const { id, expiresAt } = key;
    return {
      document: isDryRun ? { programId, days } : { ...key, programId, programGuid: program.guid },
      plan: `Program ${name} would get a key that ends after ${countText(days, 'day')}.`,
      done: [
        fieldsText({ program: name, id, expiresAt, key: key.key }),
        '',
        'No other output has the key. The program sends it with each request, in the header:',
        '  Authorization: Bearer <key>',
        'A tool that speaks OAuth only takes it as client secret, and as client id:',
        `  ${program.guid}`,
      ].join('\n'),
    };
  },
});

const list = defineList({
  name: 'program key list',
  help: {
    description: 'list the keys of the programs of a tenant, or of one program',
    examples: ['program key list acme', 'program key list acme 12'],
  },
  fields: {
    slug: argument('slug'),
    program: optionalArgument('program', { parse: parseProgram }),
  },
  async items({ slug, program }, { installation }) {
    const { listProgramKeys } = await import('./read-programs.ts');
    return listProgramKeys(installation, slug, program);
  },
  row: ({ id, programId, program, prefix, state, madeBy, expiresAt, lastUsedAt }) => ({
    id,
    prefix,
    state,
    program: programText({ id: programId, name: program }),
    expiresAt,
    lastUsedAt,
    madeBy: madeBy ?? 'an operator',
  }),
  wide: ({ createdAt }) => ({ createdAt }),
  nameOf: ({ id }) => id,
  empty: 'No keys of programs.',
});

const find = defineList({
  name: 'program key find',
  help: {
    description: 'find the tenant, the program and the id of a key, by its first 12 characters',
    examples: ['program key find sbk_5v0m1q7c # of a key that was found where it should not be'],
  },
  fields: { prefix: argument('text', { parse: parsePrefix }) },
  async items({ prefix }, { installation }) {
    const { findProgramKeys } = await import('./read-programs.ts');
    return findProgramKeys(installation, prefix);
  },
  row: ({ tenant, id, state, programId, program, expiresAt, lastUsedAt, madeBy }) => ({
    tenant,
    id,
    state,
    program: programText({ id: programId, name: program }),
    expiresAt,
    lastUsedAt,
    madeBy: madeBy ?? 'an operator',
  }),
  wide: ({ createdAt }) => ({ createdAt }),
  nameOf: ({ id }) => id,
  empty: ({ prefix }) => `No tenant has a key ${prefix}….`,
});

const revoke = defineChange({
  name: 'program key revoke',
  help: {
    description:
      'refuse one key of a program, or all that a user has made, with the access tokens that they ' +
      'were exchanged for',
    examples: [
      'program key revoke acme 5f0a6c1e-9d1b-4f5e-8f3b-0a4c8d2e7b61 --reason "key was stolen"',
      'program key revoke acme --made-by bob@acme.test --reason "left the company"',
    ],
  },
  fields: {
    slug: argument('slug'),
    key: optionalArgument('programKey', { label: 'Key', parse: parseKeyId, unless: ['madeBy'] }),
    madeBy: option('<email>', 'revoke all valid keys that this user has made', {
      kind: 'email',
      unless: ['key'],
    }),
  },
  effect: 'locks out',
  handling: { control: 'rows' },
  async change({ slug, key, madeBy }, { installation }, isDryRun) {
    const { revokeKeys } = await import('./programs.ts');
    const which = chosen({ key, madeBy });
    const { revoked, without } = await revokeKeys(installation, slug, which, isDryRun);

    const names = without.map(programText).join(', ');
    const left = names === '' ? '' : ` Left without a valid key: ${names}.`;
    const what = 'id' in which ? oneText(revoked) : `${keysText(revoked)} that ${madeBy} has made`;
    const used = revoked
      .flatMap(({ lastUsedAt }) => lastUsedAt ?? [])
      .sort()
      .at(-1);
    const last = used === undefined ? 'Not used yet.' : `Last used at ${used} (to the hour).`;

    return {
      document: { revoked: revoked.map(({ id }) => id) },
      facts: { keys: revoked, without },
      plan: `It would refuse ${what}. ${last}${left}`,
      steady: what + left,
      confirm: { name: slug, consequence: `will refuse ${what}` },
      done: `Every process refuses ${what}, within a second as a rule.${left}`,
    };
  },
});

export const keyOperations = [add, list, find, revoke];

/** Returns the choice of the keys to revoke. */
function chosen({
  key,
  madeBy,
}: {
  key: string | undefined;
  madeBy: string | undefined;
}): { id: string } | { madeBy: string } {
  if (key !== undefined && madeBy === undefined) return { id: key };
  if (madeBy !== undefined && key === undefined) return { madeBy };
  throw new OperatorError('Give either the id of a key, or --made-by with an e-mail address', {
    usage: true,
  });
}

function oneText([key]: readonly ProgramKeySummary[]): string {
  if (!key) throw new Error('one key is revoked');
  const { id, prefix, programId, program } = key;
  return `key ${id} (${prefix}…) of program ${programText({ id: programId, name: program })}`;
}

/** Describes keys by their number and their programs. */
function keysText(keys: readonly ProgramKeySummary[]): string {
  const programs = new Set(
    keys.map(({ programId, program }) => programText({ id: programId, name: program })),
  );
  const ofWhich = programs.size === 0 ? '' : ` of ${[...programs].join(', ')}`;
  return `${countText(keys.length, 'valid key')}${ofWhich}`;
}

/** Parses the number of days after which a key ends. */
function parseDays(value: string): number {
  const days = parsePositive(value);
  if (days > keyDays.max) throw new OperatorError(`Give at most ${keyDays.max} days.`);
  return days;
}

/**
 * Parses the id of a key. Refuses the key itself, before the log of operators has it among the
 * arguments.
 */
function parseKeyId(value: string): string {
  const id = value.toLowerCase();
  if (!isUuid(id)) {
    throw new OperatorError(
      'Give the id of a key, as program key list shows it, and never the key itself.',
    );
  }
  return id;
}

/** Parses the first characters of a key. Refuses the whole key, which is a secret. */
function parsePrefix(value: string): string {
  if (!/^sbk_[0-9a-v]{8}$/.test(value)) {
    throw new OperatorError('Give the first 12 characters of a key, and no more.');
  }
  return value;
}
