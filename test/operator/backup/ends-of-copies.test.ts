import { execFile } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough, type Readable } from 'node:stream';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { makeIdentity } from '../../../src/operator/backup/archive/identities.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import { targetLimits } from '../../../src/operator/backup/target/target-calls.ts';
import { errorText } from '../../../src/operator/command/texts.ts';
import { archiveInto } from '../../support/age-archives.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { startProgram } from '../../support/command-line.ts';
import { runCommand } from '../../support/run-command.ts';
import { type S3Fault, startS3Server } from '../../support/s3-server.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { use, useFolder } from '../../support/use.ts';
import { sql, type TestTenant, useWorld } from '../../support/world.ts';

/** The archive of globex has two pieces of a table, and two parts of an upload. */
const largeRows = 385_000;

/** Faults of a store at the requests with an archive, and the sentences that name them. */
const faults: Readonly<Record<string, { fault: S3Fault; sentence: RegExp }>> = {
  full: {
    fault: { kind: 'status', status: 507, code: 'XMinioStorageFull' },
    sentence: /^s3:\S+ refused a request: write \S+: 507 XMinioStorageFull\. Enlarge the store/,
  },
  gone: {
    fault: { kind: 'no answer' },
    sentence: /^s3:\S+ cannot be reached \(ECONNRESET\): write \S+\. Try again/,
  },
  silent: {
    fault: { kind: 'silent' },
    sentence: /^s3:\S+ was silent for \d+ s: write \S+\. Check AWS_ENDPOINT_URL/,
  },
};

const endedSession =
  /^(?:terminating connection due to administrator command|PostgreSQL has ended the connection)$/;

describe('the two ends of a copy', () => {
  const world = useWorld();
  const s3 = use(() => startS3Server('backups'));
  const folder = useFolder();
  const tenants = (): readonly TestTenant[] => [world.acme, world.globex];
  let recipient: string;

  before(async () => {
    recipient = (await makeIdentity()).recipient;
    await sql(
      world.globex,
      `create table noise as select encode(sha256(random()::text::bytea), 'base64') as text from generate_series(1, ${largeRows})`,
    );
  });
  afterEach(() => {
    s3.faultOf = () => undefined;
  });

  const archive = (tenant: TestTenant, write: (body: Readable) => Promise<unknown>) => {
    const macKey = randomBytes(32);
    const options = { macKey, installation: randomUUID(), recipients: [recipient] };
    return archiveInto(tenant, options, write).then(() => 'no error', errorText);
  };
  const openBucket = () =>
    openTarget(readConfig(s3.environment).backup, {
      maxSilenceMs: 500,
      bytesPerSecond: 100 * targetLimits.bytesPerSecond,
    });
  const endSessions = (tenant: TestTenant) =>
    withConnection(postgresUrl(), client =>
      client.query(
        `select pg_terminate_backend(pid, 10000) from pg_stat_activity
          where datname = $1 and application_name = 'backoffice-operator'`,
        [tenant.database],
      ),
    );

  for (const [name, { fault, sentence }] of Object.entries(faults)) {
    it(`an archive names its store that is ${name}, and neither the tar nor the parts that it cannot remove, below and above the size of a piece`, async () => {
      const target = await openBucket();

      for (const tenant of tenants()) {
        const isLarge = tenant === world.globex;
        const pattern = isLarge ? /^(PUT .*partNumber|DELETE)/ : /^PUT/;
        s3.faultOf = request => (pattern.test(request) ? fault : undefined);

        expect(
          await archive(tenant, body => target.write(`${name}/${tenant.slug}`, body)),
        ).to.match(sentence);
      }
    });
  }

  it('an archive names its database whose sessions are ended, and not the store, below and above the size of a piece', async () => {
    const target = await openBucket();

    for (const tenant of tenants()) {
      const atOnce = await archive(tenant, async body => {
        await endSessions(tenant);
        return target.write('ended/small', body);
      });

      expect(atOnce).to.match(endedSession);
    }

    const inTheMiddle = await archive(world.globex, async body => {
      const through = new PassThrough();
      body.once('data', () => void endSessions(world.globex));
      body.once('error', error => through.destroy(error)).pipe(through);
      return target.write('ended/large', through);
    });
    expect(inTheMiddle).to.match(endedSession);
    const written = [...s3.store.objects.keys()].filter(key => key.includes('/ended/'));
    expect(written).to.deep.equal([]);
  });

  it('a run names a folder that is full or takes no file of the size, and leaves no part of an archive there', async () => {
    const small = 'ulimit -f 4; exec "$0" "$@"';
    for (const { slug } of tenants()) {
      const path = join(folder, slug);
      await mkdir(path);
      const environment = { ...world.environment, ...(await backupSettings(path)) };
      const call = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);
      expect((await call('backup', 'init')).code).to.equal(0);
      const before = await readdir(path, { recursive: true });

      const { code, stdout } = await startProgram(
        'sh',
        ['-c', small, 'bin/backoffice', 'backup', 'run', slug],
        environment,
      ).ended;

      expect(stdout).to.match(
        new RegExp(
          `^${slug}: failed: folder \\S+ takes no file of this size: write \\S+ \\(EFBIG\\)\\.`,
          'm',
        ),
      );
      expect(code).to.equal(1);
      expect((await readdir(path, { recursive: true })).filter(isArchive)).to.deep.equal(
        before.filter(isArchive),
      );
    }
  });

  it('a run names a full disk of its target, and neither the tar nor the database, below and above the size of a piece', async () => {
    const call = promisify(execFile);
    const path = join(folder, 'full');
    await mkdir(path);
    // A container without the right to mount has the test of a limited size above.
    const mounted = await call('mount', ['-t', 'tmpfs', '-o', 'size=400k', 'tmpfs', path]).then(
      () => true,
      () => false,
    );

    try {
      const environment = { ...world.environment, ...(await backupSettings(path)) };
      const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);
      expect((await run('backup', 'init')).code).to.equal(0);
      if (mounted) await call('sh', ['-c', `head -c 390000 /dev/zero > ${path}/of-others || true`]);

      const { code, stdout } = await run('backup', 'run', '--all');

      if (mounted) {
        expect(code).to.equal(1);
        for (const slug of ['acme', 'globex']) {
          expect(stdout).to.match(
            new RegExp(
              `^${slug}: failed: folder \\S+ is full: write \\S+ \\(ENOSPC\\)\\. Make room`,
              'm',
            ),
          );
        }
      } else {
        expect(code, stdout).to.equal(0);
      }
    } finally {
      if (mounted) await call('umount', [path]);
      await rm(path, { recursive: true });
    }
  });

  it('an export names the folder that takes no larger file, and leaves nothing, below and above the size of a piece', async () => {
    const path = join(folder, 'exports');
    await mkdir(path);

    for (const { slug, blocks } of [
      { slug: 'acme', blocks: 1 },
      { slug: 'globex', blocks: 8_192 },
    ]) {
      const limited = `ulimit -f ${blocks}; exec "$0" "$@"`;
      const command = ['bin/backoffice', 'export', slug, '--to', join(path, `${slug}.tar`)];
      const { code, stderr } = await startProgram(
        'sh',
        ['-c', limited, ...command],
        world.environment,
      ).ended;

      expect(stderr).to.equal(
        `${path} cannot be written (EFBIG): name a file in another folder.\n`,
      );
      expect(code).to.equal(1);
    }

    expect(await readdir(path)).to.deep.equal([]);
  });

  it('a restore and a drill name the store that ends in the middle of an archive, also when it is read for the second time', async () => {
    const environment = {
      ...world.environment,
      ...(await backupSettings('')),
      ...s3.environment,
    };
    const call = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);
    for (const args of [
      ['backup', 'init'],
      ['backup', 'run', '--all'],
    ]) {
      const { code, stdout, stderr } = await call(...args);
      expect(code, stdout + stderr).to.equal(0);
    }
    const { acme, globex } = world;
    const restore = (slug: string) => ['restore', slug, '--archive', 'latest'];
    const tries = [
      { tenant: acme, reading: 1, args: restore('acme') },
      { tenant: acme, reading: 2, args: restore('acme') },
      { tenant: globex, reading: 1, args: restore('globex') },
      { tenant: globex, reading: 2, args: restore('globex') },
      { tenant: globex, reading: 2, args: ['backup', 'drill', '--count', '2'] },
    ];

    for (const { tenant, reading, args } of tries) {
      let read = 0;
      s3.faultOf = request => {
        const isArchive = request.startsWith('GET') && request.includes(`${tenant.guid}/2`);
        return isArchive && ++read === reading ? { kind: 'cut in the body' } : undefined;
      };

      const { code, stdout, stderr } = await call(...args);

      expect(code, args.join(' ')).to.equal(1);
      expect(stdout + stderr, `${args.join(' ')} ${reading}`).to.match(
        /s3:\S+ closed the connection: read \S+ \(ECONNRESET\)\. Try again/,
      );
    }
  });
});

function isArchive(name: string): boolean {
  return name.endsWith('.age');
}
