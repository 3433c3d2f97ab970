import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startProgram } from './command-line.ts';
import { eventually } from './eventually.ts';
import { freePort } from './free-port.ts';

/** A server with the protocol of S3, and one bucket. */
export interface S3Server {
  /** Settings for a target in the bucket. */
  readonly environment: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

export async function startS3Server(bucket: string): Promise<S3Server> {
  const folder = await mkdtemp(join(tmpdir(), 's3-'));
  const port = await freePort();
  const program = join(import.meta.dirname, '../../node_modules/s3rver/bin/s3rver.js');
  const settings = ['-a', '127.0.0.1', '-p', String(port), '-d', folder, '--silent', '--configure-bucket', bucket];
  const { process: server, ended } = startProgram(process.execPath, [program, ...settings], {});
  const endpoint = `http://127.0.0.1:${port}`;
  await eventually(() =>
    fetch(endpoint).then(
      () => true,
      () => false,
    ),
  );
  return {
    environment: {
      BACKUP_TARGET: `s3://${bucket}/some/prefix`,
      AWS_ENDPOINT_URL: endpoint,
      AWS_ACCESS_KEY_ID: 'S3RVER', // the only login of this server
      AWS_SECRET_ACCESS_KEY: 'S3RVER',
    },
    close: async () => {
      server.kill('SIGKILL');
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}
