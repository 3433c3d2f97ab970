import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  CreateBucketCommand,
  ListObjectVersionsCommand,
  PutBucketVersioningCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { eventually } from './eventually.ts';
import { freePort } from './free-port.ts';
import { makeServerFolder, removeServerFolder } from './server-folder.ts';

/** A store of somebody else with the protocol of S3, and one bucket. */
export interface S3Program {
  /** Settings for a target in the bucket. */
  readonly environment: Readonly<Record<string, string>>;
  /** Returns the keys of all versions of objects, and of marks of deletion. */
  versions(): Promise<string[]>;
  close(): Promise<void>;
}

/** The stores that packages install, with the programs that each needs. */
export const s3Programs = {
  'Ceph, by radosgw': {
    programs: [
      'ceph',
      'ceph-authtool',
      'ceph-mon',
      'ceph-osd',
      'monmaptool',
      'radosgw',
      'radosgw-admin',
    ],
    start: startRadosGateway,
  },
  'OpenStack Swift, by s3api': {
    programs: [
      'swift-account-server',
      'swift-container-server',
      'swift-object-server',
      'swift-proxy-server',
      'swift-ring-builder',
    ],
    start: startSwift,
  },
} as const;

/** Returns the programs that are not installed. */
export function missingPrograms(programs: readonly string[]): string[] {
  return programs.filter(program => spawnSync('which', [program]).status !== 0);
}

const bucket = 'backups';
const secretAccessKey = 'a-secret-of-the-drill';
const region = 'us-east-1';

/** The processes of a store, and its folder. */
class Programs {
  readonly folder: string;
  readonly #children: ChildProcess[] = [];
  #output = '';

  constructor(folder: string) {
    this.folder = folder;
  }

  run(program: string, args: readonly string[]): Promise<unknown> {
    return promisify(execFile)(program, args, { cwd: this.folder });
  }

  start(program: string, args: readonly string[]): void {
    const child = spawn(program, args, { cwd: this.folder, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', text => (this.#output = `${this.#output}${text}`.slice(-10_000)));
    }
    this.#children.push(child);
  }

  /** Waits until the store answers, and makes the bucket, which keeps versions. */
  async open(port: number, accessKeyId: string): Promise<S3Program> {
    const endpoint = `http://127.0.0.1:${port}`;
    const credentials = { accessKeyId, secretAccessKey };
    const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
    await eventually(() => client.send(new CreateBucketCommand({ Bucket: bucket })), 120_000).catch(
      cause => {
        throw new Error(`the store does not answer: ${this.#output}`, { cause });
      },
    );
    await client.send(
      new PutBucketVersioningCommand({
        Bucket: bucket,
        VersioningConfiguration: { Status: 'Enabled' },
      }),
    );

    return {
      environment: {
        BACKUP_TARGET: `s3://${bucket}/some/prefix`,
        AWS_ENDPOINT_URL: endpoint,
        AWS_REGION: region,
        AWS_ACCESS_KEY_ID: accessKeyId,
        AWS_SECRET_ACCESS_KEY: secretAccessKey,
      },
      versions: async () => {
        const page = await client.send(new ListObjectVersionsCommand({ Bucket: bucket }));
        return [...(page.Versions ?? []), ...(page.DeleteMarkers ?? [])].map(({ Key = '' }) => Key);
      },
      close: async () => {
        client.destroy();
        await this.close();
      },
    };
  }

  async close(): Promise<void> {
    await Promise.all(
      this.#children.map(async child => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const ended = new Promise(resolve => child.once('exit', resolve));
        child.kill('SIGKILL'); // its data is of no use any more
        await ended;
      }),
    );
    await removeServerFolder(this.folder);
  }
}

/** Starts a Ceph cluster of one monitor and one disk, in memory, with a gateway. */
async function startRadosGateway(): Promise<S3Program> {
  const programs = new Programs(await makeServerFolder('ceph'));
  const { folder } = programs;
  const [port, first, second] = [await freePort(), await freePort(), await freePort()];
  const addresses = `[v2:127.0.0.1:${first},v1:127.0.0.1:${second}]`;
  const [cluster, disk] = [randomUUID(), randomUUID()];
  for (const name of ['mon', 'osd', 'run', 'rgw']) await mkdir(join(folder, name));
  await writeFile(
    join(folder, 'ceph.conf'),
    `[global]
     fsid = ${cluster}
     mon_initial_members = a
     mon_host = ${addresses}
     public_addr = 127.0.0.1
     keyring = ${folder}/keyring
     mon_data = ${folder}/mon
     osd_data = ${folder}/osd
     rgw_data = ${folder}/rgw
     run_dir = ${folder}/run
     admin_socket = ${folder}/run/$name.$pid.asok
     log_file = ${folder}/run/$name.log
     osd_objectstore = memstore
     memstore_device_bytes = 2147483648
     osd_crush_chooseleaf_type = 0
     osd_pool_default_size = 1
     osd_pool_default_min_size = 1
     osd_pool_default_pg_num = 1
     osd_pool_default_pg_autoscale_mode = off
     mon_allow_pool_size_one = true
     mon_max_pg_per_osd = 1000
`.replaceAll(/^ +/gm, ''),
  );
  const conf = ['-c', join(folder, 'ceph.conf')];

  try {
    const keyring = join(folder, 'keyring');
    await programs.run('ceph-authtool', ['--create-keyring', keyring]);
    for (const name of ['mon.', 'osd.0', 'client.admin', 'client.gateway']) {
      const rights = ['mon', 'osd'].flatMap(kind => ['--cap', kind, 'allow *']);
      await programs.run('ceph-authtool', [keyring, '--gen-key', '-n', name, ...rights]);
    }

    const map = join(folder, 'monmap');
    await programs.run('monmaptool', [
      '--create',
      '--fsid',
      cluster,
      '--addv',
      'a',
      addresses,
      map,
    ]);
    const mon = ['--mkfs', '-i', 'a', '--monmap', map, '--keyring', keyring];
    await programs.run('ceph-mon', [...conf, ...mon]);
    programs.start('ceph-mon', [...conf, '-f', '-i', 'a']);
    await programs.run('ceph', [...conf, 'osd', 'new', disk]);
    await programs.run('ceph-osd', [...conf, '-i', '0', '--mkfs', '--osd-uuid', disk]);
    programs.start('ceph-osd', [...conf, '-f', '-i', '0']);
    programs.start('radosgw', [
      ...conf,
      '-f',
      '-n',
      'client.gateway',
      `--rgw-frontends=beast endpoint=127.0.0.1:${port}`,
    ]);
    await programs.run('radosgw-admin', [
      ...conf,
      '-n',
      'client.gateway',
      'user',
      'create',
      '--uid=backups',
      '--display-name=backups',
      '--access-key=backups',
      `--secret-key=${secretAccessKey}`,
    ]);
    return await programs.open(port, 'backups');
  } catch (error) {
    await programs.close();
    throw error;
  }
}

/** The middlewares of Swift that a bucket with versions needs, in their order. */
const swiftPipeline = [
  'catch_errors',
  'listing_formats',
  's3api',
  'tempauth',
  'copy',
  'slo',
  'versioned_writes',
  'symlink',
];
/** The settings of those that need some. */
const swiftSettings: Readonly<Record<string, string>> = {
  s3api: `location = ${region}`,
  tempauth: `user_backups_backups = ${secretAccessKey} .admin`,
  versioned_writes: 'allow_object_versioning = true',
};

/** Starts Swift with one disk, in a folder whose file system has extended attributes. */
async function startSwift(): Promise<S3Program> {
  const programs = new Programs(await makeServerFolder('swift'));
  const { folder } = programs;
  const start = async (name: string, port: number, pipeline: string[], sections: string) => {
    const file = join(folder, `${name}.conf`);
    await writeFile(
      file,
      `[DEFAULT]
bind_ip = 127.0.0.1
bind_port = ${port}
workers = 0
user = ${userInfo().username}
swift_dir = ${folder}
devices = ${folder}
mount_check = false
recon_cache_path = ${folder}
[pipeline:main]
pipeline = ${[...pipeline, `${name}-server`].join(' ')}
[app:${name}-server]
use = egg:swift#${name}
${sections}`,
    );
    programs.start(`swift-${name}-server`, [file]);
  };

  try {
    await mkdir(join(folder, 'disk'));
    await writeFile(
      join(folder, 'swift.conf'),
      '[swift-hash]\nswift_hash_path_prefix = drill\nswift_hash_path_suffix = drill\n',
    );
    for (const name of ['account', 'container', 'object']) {
      const ring = join(folder, `${name}.builder`);
      const port = await freePort();
      await programs.run('swift-ring-builder', [ring, 'create', '2', '1', '0']);
      const disk = `r1z1-127.0.0.1:${port}/disk`;
      await programs.run('swift-ring-builder', [ring, 'add', disk, '1']);
      await programs.run('swift-ring-builder', [ring, 'rebalance']);
      await start(name, port, [], '');
    }

    const port = await freePort();
    const filters = swiftPipeline.map(
      name => `[filter:${name}]\nuse = egg:swift#${name}\n${swiftSettings[name] ?? ''}\n`,
    );
    const accounts = 'allow_account_management = true\naccount_autocreate = true\n';
    await start('proxy', port, swiftPipeline, `${accounts}${filters.join('')}`);
    return await programs.open(port, 'backups:backups');
  } catch (error) {
    await programs.close();
    throw error;
  }
}
