import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { useArchivedServer } from '../../support/archived-server.ts';
import { type CopiedServer, copyServer } from '../../support/copied-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { succeed } from '../../support/succeed.ts';

describe('two machines that are copies of one, with its installation id and writer', () => {
  const { server, settings } = useArchivedServer();
  let copied: CopiedServer;
  /** The settings of the two machines, which have one target. */
  let first: Record<string, string>;
  let second: Record<string, string>;

  before(async () => {
    first = settings();
    copied = await copyServer(server.url);
    second = { ...first, DATABASE_URL: databaseUrl(copied.url, 'office') };
  });
  after(() => copied.close());

  it('the one that runs second writes and removes nothing until it takes over, and then the other one does not', async () => {
    await succeed(first, 'tenant', ['backup', 'run', '--all']);

    for (const [refused, winner] of [
      [second, first],
      [first, second],
    ] as const) {
      for (const args of [['run', '--all'], ['prune'], ['recognise']]) {
        const { code, stderr } = await runCommand(
          'scripts/tenant.ts',
          ['backup', ...args],
          refused,
        );
        expect(code, args.join(' ')).to.equal(1);
        expect(stderr, args.join(' ')).to.include(
          'Another control database of this installation writes to',
        );
      }

      await succeed(winner, 'tenant', ['backup', 'run', '--all']);
      if (refused === second) {
        await succeed(second, 'tenant', ['backup', 'init', '--take-over']);
      }
    }
  });
});
