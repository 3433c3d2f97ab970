import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { withConnection } from '../../../../src/lib/postgres/connection.ts';
import { requireRecoveredTo } from '../../../../src/operator/fleet/recovery/recovered-tenant.ts';
import {
  listMoments,
  withRecoveryCommand,
} from '../../../../src/operator/fleet/recovery/recovery-command.ts';
import { eventually } from '../../../support/eventually.ts';
import { useServerFolder } from '../../../support/server-folder.ts';
import { postgresUrl } from '../../../support/test-server.ts';

const args = ['default', 'office_tenant_1', '2026-11-21 14:05:00.000000+00'] as const;
const url = 'postgresql://operator:very-secret@db.test/postgres';

describe('RECOVERY_COMMAND', () => {
  const folder = useServerFolder('recovery');

  /** Makes a program of shell commands; `$FOLDER` is a folder of its own. */
  async function program(name: string, commands: string): Promise<string> {
    const path = join(folder, name);
    await mkdir(`${path}.d`);
    await writeFile(path, `#!/bin/sh\nFOLDER='${path}.d'\n${commands}\n`);
    await chmod(path, 0o755);
    return path;
  }
  const fileOf = (name: string, file: string) =>
    readFile(join(folder, `${name}.d`, file), 'utf8').catch(() => undefined);
  const messageOf = (work: Promise<unknown>): Promise<string> =>
    work.then(
      () => 'it succeeded',
      (error: Error) => error.message,
    );

  it('RECOVERY_COMMAND gets server, database and time as arguments that no shell reads, and cleans up after the work', async () => {
    const path = await program(
      'good',
      `printf '%s|' "$@" > "$FOLDER/args"; echo '${url}'; cat > /dev/null; touch "$FOLDER/clean"`,
    );
    const seen = await withRecoveryCommand(path, ['a; touch x', '$(id)', args[2]], async given => {
      expect(await fileOf('good', 'clean')).to.equal(undefined);
      return given;
    });
    expect(seen).to.equal(url);
    expect(await fileOf('good', 'args')).to.equal(`a; touch x|$(id)|${args[2]}|`);
    expect(await fileOf('good', 'clean')).to.equal('');
  });

  it('RECOVERY_COMMAND cleans up also when the work fails', async () => {
    const path = await program('failing', `echo '${url}'; cat > /dev/null; touch "$FOLDER/clean"`);
    const work = withRecoveryCommand(path, args, () =>
      Promise.reject(new Error('the copy failed')),
    );
    expect(await messageOf(work)).to.equal('the copy failed');
    expect(await fileOf('failing', 'clean')).to.equal('');
  });

  it('a sentence in place of a URL is the reason of the refusal, without URLs, and nothing is done', async () => {
    const unreachable = () => Promise.reject(new Error('it was called'));

    const cases: [name: string, commands: string, message: string][] = [
      [
        'sentence',
        `echo 'No backup is older than ${url} says.'; exit 3`,
        'RECOVERY_COMMAND: No backup is older than (address) says',
      ],
      [
        'stderr',
        `echo 'first' >&2; echo 'no room left' >&2; exit 1`,
        'RECOVERY_COMMAND: no room left',
      ],
      [
        'silent',
        'exit 4',
        `RECOVERY_COMMAND: ${folder}/silent has printed no URL, and has ended with code 4`,
      ],
      ['waiting', `echo 'Not a URL.'; cat > /dev/null`, 'RECOVERY_COMMAND: Not a URL'],
    ];

    for (const [name, commands, message] of cases) {
      expect(
        await messageOf(withRecoveryCommand(await program(name, commands), args, unreachable)),
      ).to.equal(message);
    }

    expect(await messageOf(withRecoveryCommand(join(folder, 'none'), args, unreachable))).to.match(
      /cannot be run \(.*ENOENT/,
    );
  });

  it('the child of a killed RECOVERY_COMMAND cleans up, and the kill is the reason of the refusal if nothing was printed', async () => {
    const child = `exec 3<&0; { cat <&3 > /dev/null; touch "$FOLDER/clean"; } &`;

    const before = await program('killed', `${child}\nkill -KILL $$`);
    expect(await messageOf(withRecoveryCommand(before, args, async () => {}))).to.match(
      /has ended with SIGKILL$/,
    );
    expect(await fileOf('killed', 'clean')).to.equal('');

    const during = await program(
      'killed-later',
      `${child}\necho '${url}'; echo $$ > "$FOLDER/pid"; wait`,
    );

    await withRecoveryCommand(during, args, async () => {
      const pid = await eventually(() => fileOf('killed-later', 'pid'), 10_000);
      process.kill(Number(pid), 'SIGKILL');
    });
    expect(await fileOf('killed-later', 'clean')).to.equal('');
  });

  it('RECOVERY_COMMAND gets no secret of the installation in its environment', async () => {
    const path = await program(
      'environment',
      `env > "$FOLDER/env"; echo '${url}'; cat > /dev/null`,
    );
    process.env.MASTER_KEY = 'a-master-key';
    process.env.RECOVERY_DIR = '/backups';

    await withRecoveryCommand(path, args, async () => {}).finally(() => {
      delete process.env.MASTER_KEY;
      delete process.env.RECOVERY_DIR;
    });

    expect(await fileOf('environment', 'env'))
      .to.include('RECOVERY_DIR=/backups')
      .and.not.include('a-master-key');
  });

  it('moments lists what RECOVERY_COMMAND prints, or says why there are none', async () => {
    const path = await program(
      'list',
      `[ "$*" = '--list second' ] && echo '2026-11-20T00:00:00Z 2026-11-21T00:00:00Z'`,
    );
    expect(await listMoments(path, 'second')).to.deep.equal([
      '2026-11-20T00:00:00Z 2026-11-21T00:00:00Z',
    ]);
    const refusing = await program('list-none', `echo 'There is no backup.'; exit 1`);
    expect(await messageOf(listMoments(refusing, 'second'))).to.equal(
      'RECOVERY_COMMAND: There is no backup',
    );
  });

  it('a server that has a change later than the moment was not recovered to it, and is refused', async () => {
    const check = (at: string, lastChange: Date | undefined) =>
      withConnection(postgresUrl(), client => requireRecoveredTo(client, at, lastChange));
    const later = new Date('2026-11-21T14:05:00.001Z');
    expect(await messageOf(check(args[2], later))).to.match(
      /has a change of 2026-11-21T14:05:00.001Z, which is later/,
    );
    await check(args[2], new Date('2026-11-21T14:04:59Z'));
    await check(args[2], undefined);
  });
});
