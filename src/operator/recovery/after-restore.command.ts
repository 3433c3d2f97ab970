import { databaseNameOf } from '../../control/server-urls.ts';
import { defineOperation } from '../command/operation.ts';
import { optionalSecret } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';

export const afterRestoreOperation = defineOperation({
  name: 'control after-restore',
  help: {
    description:
      'make a restored control database safe, before the service starts: end sessions, ' +
      'replace keys',
    examples: [
      'control after-restore # control restore does it by itself; run it after pg_restore',
      'control after-restore --replay --yes < url-file # the URL of the replaced control database',
    ],
  },
  fields: {
    laterUrl: optionalSecret(
      'url',
      'URL of the control database that was replaced',
      '--replay',
      'read the URL of the control database that was replaced from stdin; revoke again what ' +
        'is revoked there',
    ),
  },
  effect: 'destroys',
  async plan(_, { installation }) {
    const { rows } = await installation.statements.query<{
      sessions: number;
      keys: number;
      tokens: number;
      clients: number;
      programKeys: number;
      recoveryCodes: number;
    }>(
      `select (select count(*)::int from sessions where revoked_at is null) as sessions,
              (select count(*)::int from signing_keys where status <> 'disabled') as keys,
              (select count(*)::int from legacy_tokens where revoked_at is null) as tokens,
              (select count(*)::int from api_clients where revoked_at is null) as clients,
              (select count(*)::int from program_keys where revoked_at is null) as "programKeys",
              (select count(*)::int from recovery_codes) as "recoveryCodes"`,
    );
    const { sessions, keys, tokens, clients, programKeys, recoveryCodes } = rows[0] ?? {
      sessions: 0,
      keys: 0,
      tokens: 0,
      clients: 0,
      programKeys: 0,
      recoveryCodes: 0,
    };

    return {
      document: { sessions, keys, tokens, clients, programKeys, recoveryCodes, state: 'planned' },
      text: () =>
        `${countText(sessions, 'session')} would end, ${countText(keys, 'signing key')} be ` +
        `replaced, and ${countText(tokens, 'legacy token')}, ` +
        `${countText(clients, 'API client')} and ` +
        `${countText(programKeys, 'key of programs', 'keys of programs')} be revoked, and ` +
        `${countText(recoveryCodes, 'recovery code')} removed.`,
      confirm: {
        name: databaseNameOf(installation.controlUrl),
        kind: 'name',
        consequence: 'will end all sessions, and replace all signing keys',
      },
    };
  },
  async run({ laterUrl }, { installation, output }) {
    const { withConnection } = await import('../../lib/postgres/connection.ts');
    const { afterRestore } = await import('./after-restore.ts');
    const { parseServerUrl } = await import('../servers/parse-server-url.ts');
    const { readLaterState, replay, replayedLines } = await import('./replay.ts');

    const later =
      laterUrl === undefined
        ? undefined
        : await withConnection(parseServerUrl(laterUrl), readLaterState);
    const report = await afterRestore(installation, later && (client => replay(client, later)));

    const { replayed, ...counts } = report;
    const lines = replayed ? replayedLines(replayed) : [unknownText(report.newestChange)];
    output.result(report, () =>
      [
        fieldsText(counts),
        '',
        ...lines,
        'Everybody logs in again. Next: bin/backoffice migrate --all, then bin/backoffice doctor',
      ].join('\n'),
    );
  },
});

function unknownText(newestChange: string | null): string {
  return (
    `What was taken away after ${newestChange ?? 'the backup'} is not known: disable again ` +
    'the users, and suspend or delete again the tenants, that were disabled, suspended or ' +
    'deleted since'
  );
}
