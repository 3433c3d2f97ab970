import { writeFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import { makeIdentity } from '../../../src/operator/backup/archive/identities.ts';
import {
  createArchiveName,
  parseArchiveName,
} from '../../../src/operator/backup/target/archive-name.ts';
import { sealBytes } from '../../support/age-archives.ts';
import { archivesIn } from '../../support/archive-facts.ts';
import { useArchivedServer } from '../../support/archived-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { succeed } from '../../support/succeed.ts';

describe('the faults that drills find', () => {
  const { server, folder, target, facts, settings } = useArchivedServer();
  let environment: Record<string, string>;
  /** The settings of a host whose identity opens none of the archives. */
  let stranger: Record<string, string>;

  const on = (chosen: Record<string, string>, ...args: string[]) =>
    runCommand('scripts/tenant.ts', args, chosen);
  const faults = () =>
    server.control<{ name: string; fault: string }>(
      'select name, fault from archives where fault is not null order by name',
    );
  const newestOf = async (slug: string): Promise<string> => {
    const guid = await facts.guidOf(slug);
    return (await facts.rowsOf('complete')).find(name => name.includes(guid)) ?? '';
  };

  before(async () => {
    environment = settings();
    const { identity } = await makeIdentity();
    await writeFile(`${folder}.stranger`, `${identity}\n`, { mode: 0o600 });
    stranger = { ...environment, BACKUP_IDENTITY_FILE: `${folder}.stranger` };
  });

  it('a drill with a wrong identity fails, and says nothing of the archives: none is faulty, and none is made anew', async () => {
    const drill = await on(stranger, 'backup', 'drill');

    expect(drill.code).to.equal(1);
    expect(drill.stdout).to.match(
      /acme: \S+: failed: no identity in BACKUP_IDENTITY_FILE opens it/,
    );
    expect(await faults()).to.deep.equal([]);
    const run = await on(environment, 'backup', 'run', '--all', '--json');
    expect(run.stdout).to.include('"archived":1,"unchanged":2'); // the control database is one
    await succeed(environment, 'tenant', ['backup', 'drill']);
  });

  it('a recognition with a wrong identity says nothing of the archives either', async () => {
    const name = await newestOf('acme');
    await server.control(`update archives set state = 'unproved' where name = '${name}'`);

    const recognised = await on(stranger, 'backup', 'recognise', 'acme');

    expect(recognised.code).to.equal(1);
    expect(await faults()).to.deep.equal([]);
    await succeed(environment, 'tenant', ['backup', 'recognise', 'acme']);
    expect(await newestOf('acme')).to.equal(name);
  });

  it('an object that a stranger has sealed in place of an archive is faulty, although no identity opens it', async () => {
    const name = await newestOf('globex');
    const kept = Buffer.concat(await Array.fromAsync(await target.read(name)));
    const sealed = await sealBytes(Buffer.from('something else'), await makeIdentity());
    await target.write(name, Readable.from([sealed]));

    const drill = await on(environment, 'backup', 'drill');

    await target.write(name, Readable.from([kept]));
    expect(drill.code).to.equal(1);
    expect((await faults()).map(each => each.name)).to.deep.equal([name]);
    await server.control('update archives set fault = null');
  });

  it('of objects that were planted before the control database was restored, drills prove the real archive, and doctor names them', async () => {
    const real = await newestOf('acme');
    const parts = parseArchiveName(real);
    if (!parts) throw new Error('acme has no archive');
    const later = [1, 2, 3, 4].map(ms => new Date(parts.time.getTime() + 86_400_000 * ms));
    const planted: string[] = [];
    for (const time of [...later, new Date('2999-01-01T00:00:00Z')]) {
      const { name } = createArchiveName({ ...parts, time });
      const bytes =
        time === later[0] ? await sealBytes(Buffer.from('x'), await makeIdentity()) : '';
      await target.write(name, Readable.from(bytes ? [bytes] : []));
      planted.push(name);
    }
    await server.sql('drop database office with (force)');

    await succeed(environment, 'control', ['restore']);
    await succeed(environment, 'tenant', ['backup', 'init', '--take-over']);

    expect(await facts.rowsOf('unproved')).to.have.members(planted);
    const drill = await on(environment, 'backup', 'drill', '--json');
    expect(drill.code, drill.stdout).to.equal(0);
    const [acme] = drill.stdout
      .trim()
      .split('\n')
      .map(line => JSON.parse(line))
      .filter(({ slug }) => slug === 'acme');
    expect(acme.archive).to.equal(real);
    expect(acme.refused.map(({ name }: { name: string }) => name)).to.have.members(planted);

    await succeed(environment, 'tenant', ['backup', 'run', '--all']);
    await succeed(environment, 'tenant', ['backup', 'prune']);
    expect(await archivesIn(target)).to.include.members([real, ...planted]);
    const doctor = await on(environment, 'doctor', '--json');
    const [found, ...others] = JSON.parse(doctor.stdout).findings.filter(
      ({ check }: { check: string }) => check === 'stray_objects',
    );
    expect(others).to.deep.equal([]);
    expect(found.problem).to.include('5 objects').and.include(parts.tenant);

    for (const name of planted) await target.remove(name);
    await server.control(`delete from archives where name in ('${planted.join("', '")}')`);
  });
});
