import { spawnSync } from 'node:child_process';
import { expect } from 'chai';
import { startProgram } from '../../support/command-line.ts';
import { startMs, statuses, useStarts } from '../../support/starts.ts';

const processNamespace = ['--pid', '--fork', '--mount-proc'];
const allNamespaces = [...processNamespace, '--net', '--ipc'];
const writes = 400;

describe('embedded PostgreSQL across namespaces', function () {
  this.timeout(2 * startMs);
  const starts = useStarts({ RATE_LIMIT_GLOBAL: '100000/1m' });
  const { running, stopped, start, logIn, postmaster } = starts;

  before(function () {
    // Only a login that may make namespaces (root, as a rule) can be in others than the
    // service.
    if (spawnSync('unshare', [...allNamespaces, 'true']).status !== 0) this.skip();
  });

  /** Runs a command in namespaces of its own beside 400 writes, and returns how it ended. */
  async function provisionBesideWrites(slug: string, namespaces: string[]) {
    const client = await logIn(await running());
    const server = await postmaster();
    const command = [
      'bin/backoffice',
      'provision',
      slug,
      '--name',
      slug,
      '--admin-email',
      `admin@${slug}.test`,
    ];
    const { ended } = startProgram('unshare', [...namespaces, ...command], starts.environment);

    const titles = Array.from({ length: writes }, (_, index) => `${slug} ${index}`);
    for (const [index, Title] of titles.entries()) {
      if (index === writes / 2) await ended;
      const { status, body } = await client.post(statuses, { Title });
      expect(status, JSON.stringify(body)).to.equal(201);
    }

    expect(await postmaster(), 'the PostgreSQL of the service still runs').to.equal(server);
    await stopped();
    const { body } = await (await logIn(await start())).get(statuses);
    const stored = new Set(body.map(({ Title }: { Title: string }) => Title));
    expect(titles.filter(title => !stored.has(title))).to.deep.equal([]);
    return ended;
  }

  it('a command in other process, network and IPC namespaces is refused on the data of a running service, and no acknowledged write is lost', async () => {
    const { code, stderr } = await provisionBesideWrites('apart', allNamespaces);

    expect(code).to.equal(1);
    expect(stderr).to.match(
      /^A PostgreSQL already uses .* Run this where it was started, or stop it first\.\n$/,
    );
  });

  it('a command in another process namespace joins the PostgreSQL of a running service, and no acknowledged write is lost', async () => {
    const { code, stderr } = await provisionBesideWrites('beside', processNamespace);

    expect(stderr).to.equal('');
    expect(code).to.equal(0);
  });
});
