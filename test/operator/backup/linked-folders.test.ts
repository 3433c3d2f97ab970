import { mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { expect } from 'chai';
import { ArchiveFacts } from '../../support/archive-facts.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('a purge in a folder that has symbolic links', () => {
  const server = use(createDedicatedServer);
  const folder = useServerFolder('archives');
  const facts = new ArchiveFacts(server);
  let environment: Record<string, string>;

  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);
  /** Returns the folder of the archives of a tenant. */
  async function folderOf(slug: string): Promise<string> {
    const guid = await facts.guidOf(slug);
    const name = (await facts.rowsOf('complete')).find(each => each.includes(guid)) ?? '';
    return join(folder, dirname(name));
  }
  /** Returns the names of the folders of all other tenants. */
  const readSiblings = async (path: string): Promise<string[]> =>
    (await readdir(dirname(path))).filter(name => name !== basename(path));

  before(async () => {
    for (const slug of ['acme', 'globex', 'initech']) await server.provision(slug);
    environment = { ...server.environment, ...(await backupSettings(folder)) };
    await backUp(environment);
  });

  it('the links in the folder of its tenant are removed with it, and nothing that is behind them', async () => {
    const path = await folderOf('acme');
    const others = await readSiblings(path);
    const other = join(folder, 'notes.txt');
    await writeFile(other, 'of somebody');
    await symlink(other, join(path, 'link'));
    await symlink(join(folder, 'nowhere'), join(path, 'dangling'));
    await mkdir(join(path, 'empty'));
    await succeed(environment, 'tenant', ['delete', 'acme', '--yes']);

    const { code, stderr } = await run('purge', 'acme', '--yes');

    expect(code, stderr).to.equal(0);
    expect(await readdir(dirname(path))).to.deep.equal(others);
    expect(await readFile(other, 'utf8')).to.equal('of somebody');
  });

  it('a link from the folder of its tenant to that of another one costs the other one no archive, and is named until it is gone', async () => {
    const [path, other] = [await folderOf('globex'), await folderOf('initech')];
    const others = await readSiblings(path);
    const before = await readdir(other);
    await rename(path, `${path}.moved`);
    await symlink(other, path);
    await succeed(environment, 'tenant', ['delete', 'globex', '--yes']);

    const { code, stdout } = await run('purge', 'globex', '--yes');

    expect(await readdir(other)).to.deep.equal(before);
    expect(code).to.equal(1);
    expect(stdout).to.include('has a symbolic link in the place of a folder');
    await rm(path);
    await rename(`${path}.moved`, path);
    await succeed(environment, 'tenant', ['purge', 'globex', '--yes']);
    expect(await readdir(dirname(path))).to.deep.equal(others);
  });
});
