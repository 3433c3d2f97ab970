import { execFileSync } from 'node:child_process';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { makeBaseBackup } from '../../../src/operator/restore/moment/base-backup.ts';
import {
  type BaseFolder,
  baseFolder,
  listBaseBackups,
  unfinished,
} from '../../../src/operator/restore/moment/base-folder.ts';
import { pruneBaseBackups } from '../../../src/operator/restore/moment/prune-base-backups.ts';
import { findServer } from '../../../src/operator/tenants/servers.ts';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';
import { makeServerFolder } from '../../support/server-folder.ts';

const commandLine = fileURLToPath(new URL('../../../scripts/tenant.ts', import.meta.url));
const keep = { count: 10 };

describe('base backups of one server at the same time', () => {
  let server: DedicatedServer;
  let root: string;
  let folder: BaseFolder;

  before(async () => {
    server = await createDedicatedServer();
    root = await makeServerFolder('base');
    folder = baseFolder(root, 'default');
  });
  after(async () => {
    await server.close();
    await rm(root, { recursive: true, force: true });
  });

  const names = async (): Promise<string[]> =>
    (await readdir(folder.root)).filter(name => name.startsWith('base-')).sort();
  const make = async (onProgress?: () => void) =>
    makeBaseBackup(server.installation, await findServer(server.installation, 'default'), folder, {
      keep,
      ...(onProgress && { onProgress }),
    });

  it('a second run is refused while the first one copies, and leaves its unfinished copy as it is', async () => {
    const refusals: string[] = [];
    const second = (): void => {
      if (refusals.length > 0) return;
      const env = { ...process.env, ...server.environment, BASE_BACKUP_DIR: root };
      try {
        const options = { env, encoding: 'utf8', stdio: 'pipe' } as const;
        refusals.push(execFileSync(process.execPath, [commandLine, 'backup', 'base'], options));
      } catch (error) {
        refusals.push((error as { stderr: string }).stderr);
      }
    };
    const { base } = await make(second);
    expect(refusals).to.have.length(1);
    expect(refusals[0]).to.include('Another run makes a base backup of server default');
    expect(await names()).to.deep.equal([`base-${base.id}`]);
    expect(await listBaseBackups(folder)).to.deep.equal([base]);
    expect((await readdir(join(folder.base(base.id), 'files'))).sort()).to.include.members(['base', 'backup_label']);
  });

  it('a run removes the unfinished copy that a killed one has left', async () => {
    const left = `${folder.base('20260101T000000000Z')}${unfinished}`;
    await mkdir(left);
    await make();
    expect(await names()).to.have.length(2);
    expect(await names()).not.to.include(basename(left));
  });

  it('two removals at the same time both succeed, and keep the newest base backup', async () => {
    await make();
    const prune = () => pruneBaseBackups(folder, { count: 1 }, new Date());
    const pruned = await Promise.all([prune(), prune()]);
    expect(pruned.map(({ held }) => held)).to.deep.equal([[], []]);
    expect(await names()).to.have.length(1);
  });
});
