import { Readable } from 'node:stream';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { readIdentities } from '../../../src/operator/backup/archive/identities.ts';
import {
  archiveFolder,
  createArchiveName,
  parseArchiveName,
} from '../../../src/operator/backup/target/archive-name.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../../src/operator/backup/target/target.ts';
import { sealBytes } from '../../support/age-archives.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { useOwnDrills } from '../../support/own-drills.ts';
import { runCommand } from '../../support/run-command.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql } from '../../support/world.ts';

/** A target that somebody else can write to. */
interface Place {
  readonly settings: Readonly<Record<string, string>>;
  /**
   * Makes an object in an installation whose name PostgreSQL cannot store.
   * @returns a function that removes it
   */
  readonly plantUnstorable?: (installation: string) => () => void;
  close(): Promise<unknown>;
}

const places: Readonly<Record<string, () => Promise<Place>>> = {
  folder: async () => ({
    settings: await backupSettings(await makeServerFolder('planted')),
    close: async () => {},
  }),
  bucket: async () => {
    const s3 = await startS3Server('backups');
    const keys = await backupSettings('s3://backups/office');
    return {
      settings: { ...s3.environment, ...keys },
      plantUnstorable: installation => {
        // Amazon's store takes such a key, too, and lists it with this reference.
        const key = `office/${installation}/zero`;
        s3.store.objects.set(key, Buffer.from('x'));
        s3.changeBody = body =>
          body.replaceAll(`/${installation}/zero<`, `/${installation}/&#x0;&#xd800;<`);
        return () => s3.store.objects.delete(key);
      },
      close: () => s3.close(),
    };
  },
};

/** The names of objects that are newer than an archive of their folder. */
interface Planted {
  readonly empty: string;
  readonly header: string;
  readonly bomb: string;
  readonly future: string;
}

const mebibyte = 1024 * 1024;

for (const [kind, make] of Object.entries(places)) {
  describe(`objects that a stranger has planted beside real archives in a ${kind}`, () => {
    useOwnDrills();
    const place = use(make);
    const world = use(async () =>
      createWorld({ ...place.settings, BACKUP_KEEP: '48h,14d,8w,12m' }),
    );
    let target: Target;
    let large: Buffer;
    /** The archive of acme, whose database no test changes. */
    let real: string;
    /** The objects beside it. */
    let planted: Planted;

    const tenant = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
    const namesIn = () => Array.fromAsync(target.list(''), ({ name }) => name);
    const newestOf = async (guid: string): Promise<string> => {
      const [row] = await controlSql<{ name: string }>(
        world,
        `select name from archives where tenant_guid = ? and state = 'complete' order by archived_at desc limit 1`,
        [guid],
      );
      return row?.name ?? '';
    };
    const bomb = async (): Promise<Buffer> => {
      const { BACKUP_RECIPIENTS: recipient = '', BACKUP_IDENTITY_FILE } = place.settings;
      const [identity = ''] = await readIdentities(BACKUP_IDENTITY_FILE);
      return sealBytes(Buffer.alloc(64 * mebibyte), { identity, recipient });
    };

    /** Writes an object beside an archive, under the name of another archive. */
    const plant = async (beside: string, time: Date, bytes: Buffer): Promise<string> => {
      const parts = parseArchiveName(beside);
      if (!parts) throw new Error(`${beside} is no archive`);
      const { name } = createArchiveName({ ...parts, time });
      await target.write(name, Readable.from(bytes.length > 0 ? [bytes] : []));
      return name;
    };

    const plantAll = async (beside: string): Promise<Planted> => {
      const { time = new Date() } = parseArchiveName(beside) ?? {};
      const later = (ms: number): Date => new Date(time.getTime() + ms);
      const header = Buffer.concat([
        Buffer.from('age-encryption.org/v1\n'),
        Buffer.alloc(2 * mebibyte, 'a'),
      ]);

      return {
        empty: await plant(beside, later(1), Buffer.alloc(0)),
        header: await plant(beside, later(2), header),
        bomb: await plant(beside, later(3), large),
        future: await plant(beside, new Date('2999-01-01T00:00:00Z'), Buffer.alloc(0)),
      };
    };

    /** Makes a tenant that has an archive, and plants objects beside that. */
    const plantNew = async (slug: string) => {
      const { guid, database } = await world.provision(slug);
      await succeed(world.environment, 'tenant', ['backup', 'run', slug]);
      const archive = await newestOf(guid);
      return { guid, database, archive, beside: await plantAll(archive) };
    };

    /** Returns the problems that doctor finds with the objects of a tenant. */
    const straysOf = async (guid: string): Promise<string[]> => {
      const { stdout } = await tenant('doctor', '--json');
      return JSON.parse(stdout)
        .findings.filter(({ check }: { check: string }) => check === 'stray_objects')
        .map(({ problem }: { problem: string }) => problem)
        .filter((problem: string) => problem.includes(guid));
    };

    before(async () => {
      target = await openTarget(readConfig(world.environment).backup);
      large = await bomb();
      await backUp(world.environment);
      real = await newestOf(world.acme.guid);
      planted = await plantAll(real);
    });

    it('a run, a prune, a verification and a drill succeed for all tenants, and remove neither a real archive nor a planted object', async () => {
      await sql(world.globex, `insert into currencies (code, name) values ('NOK', 'Krone')`);

      for (const args of [['run', '--all'], ['prune'], ['verify'], ['drill']]) {
        await succeed(world.environment, 'tenant', ['backup', ...args]);
      }

      const names = await namesIn();
      expect(names).to.include(real).and.include.members(Object.values(planted));
      const drilled = await controlSql<{ name: string }>(
        world,
        'select name from archives where proved_at is not null and tenant_guid in (?, ?)',
        [world.acme.guid, world.globex.guid],
      );
      expect(drilled.map(({ name }) => name)).to.have.members([
        real,
        await newestOf(world.globex.guid),
      ]);
    });

    it('doctor names the planted objects once for their folder, with the newest one, its size and its time', async () => {
      const found = await straysOf(world.acme.guid);

      expect(found).to.have.length(1);
      expect(found[0])
        .to.include('4 objects')
        .and.include(archiveFolder(real.split('/')[0] ?? '', world.acme.guid))
        .and.match(/the newest \S+\.tar\.zst\.age \(\S+ \S+, \S+Z by its clock\)/);
    });

    it('a restore of the newest archive names an object that is newer and cannot be used, and restores one that is named', async () => {
      const { archive, beside } = await plantNew('hooli');

      const plan = await tenant('restore', 'hooli', '--archive', 'latest', '--dry-run');
      expect(plan.stdout).to.include(archive);
      expect(plan.stdout).to.include(beside.future);

      const latest = await tenant('restore', 'hooli', '--archive', 'latest');
      expect(latest.code).to.equal(1);
      expect(latest.stderr)
        .to.include(`${beside.future} is newer than the newest archive of hooli`)
        .and.include(`--archive ${archive}`);

      await succeed(world.environment, 'tenant', ['restore', 'hooli', '--archive', archive]);
      await succeed(world.environment, 'tenant', ['restore', 'globex', '--archive', 'latest']);
    });

    it('backup recognise counts none of them, and says of each why, without unpacking more than its bound', async () => {
      const { code, stdout } = await tenant('backup', 'recognise', '--json');

      expect(code).to.equal(1);
      const errors = new Map(
        stdout
          .trim()
          .split('\n')
          .map(line => JSON.parse(line))
          .map(({ archive, error }) => [archive, error]),
      );
      expect(errors.get(planted.empty)).to.equal('it is empty');
      expect(errors.get(planted.future)).to.equal('it is empty');
      expect(errors.get(planted.header)).to.equal('its header has more than 65536 bytes');
      expect(errors.get(planted.bomb)).to.match(/^it unpacks to more than \d+ bytes/);
      expect(
        await controlSql(world, 'select from archives where name = any (?)', [
          `{${Object.values(planted).join(',')}}`,
        ]),
      ).to.deep.equal([]);
    });

    it('an object in place of an archive is not unpacked beyond what the archive had', async () => {
      const name = await newestOf(world.globex.guid);
      const kept = Buffer.concat(await Array.fromAsync(await target.read(name)));
      await target.write(name, Readable.from([large]));

      const { code, stderr } = await tenant('restore', 'globex', '--archive', name);

      await target.write(name, Readable.from([kept]));
      expect(code).to.equal(1);
      expect(stderr).to.include('it unpacks to more bytes than were written');
      await succeed(world.environment, 'tenant', ['restore', 'globex', '--archive', name]);
    });

    it('a lost database is restored from the newest archive that opens, and the objects that do not are named', async () => {
      const { database, archive, beside } = await plantNew('initech');
      await withConnection(databaseUrl(postgresUrl(), 'postgres'), client =>
        client.query(`drop database "${database}" with (force)`),
      );

      const { code, stdout, stderr } = await tenant('restore', 'initech', '--lost');

      expect(code, stderr).to.equal(0);
      expect(stdout).to.include(archive);
      for (const name of Object.values(beside)) {
        expect(stderr).to.include(`The archive ${name} of initech cannot be used:`);
      }
    });

    it('an object with a name that no archive and no folder of a tenant has stops no run, and doctor names it', async () => {
      const [installation = ''] = real.split('/');
      const odd = [`tenants/${'-'.repeat(36)}/x`, `tenants/${'a'.repeat(36)}/x`, 'odd'];
      for (const name of odd) {
        await target.write(`${installation}/${name}`, Readable.from([Buffer.from('x')]));
      }
      const removeUnstorable = place.plantUnstorable?.(installation);

      await succeed(world.environment, 'tenant', ['backup', 'run', '--all']);
      await succeed(world.environment, 'tenant', ['backup', 'prune']);

      const { stdout } = await tenant('doctor', '--json');
      for (const name of odd) {
        expect(stdout).to.include(`the newest ${installation}/${name}`);
        await target.remove(`${installation}/${name}`);
      }
      removeUnstorable?.();
    });

    it('a purge removes the whole folder of its tenant, whatever is in it, and nothing of another tenant', async () => {
      const { guid, archive } = await plantNew('umbrella');
      await target.write(
        `${archive.split('/').slice(0, 3).join('/')}/notes.txt`,
        Readable.from([Buffer.from('no archive')]),
      );
      await succeed(world.environment, 'tenant', ['backup', 'run', '--all']);
      expect(await straysOf(guid)).to.have.length(1);
      const others = (await namesIn()).filter(
        name => name.includes('/tenants/') && !name.includes(guid),
      );
      await succeed(world.environment, 'tenant', ['delete', 'umbrella', '--yes']);

      await succeed(world.environment, 'tenant', ['purge', 'umbrella', '--yes']);

      const left = await namesIn();
      expect(left.filter(name => name.includes(guid))).to.deep.equal([]);
      expect(left).to.include.members(others);
      await succeed(world.environment, 'tenant', ['backup', 'run', '--all']);
      expect(await straysOf(guid)).to.deep.equal([]);
    });
  });
}
