import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { startS3Server } from '../../support/s3-server.ts';
import { startStsServer } from '../../support/sts-server.ts';
import { use, useFolder } from '../../support/use.ts';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../..', import.meta.url));

/**
 * Checks the target of the environment of a process of its own, whose environment the SDK
 * reads.
 */
const program = `
  import { readConfig } from './src/lib/config/config.ts';
  import { openBackupTarget } from './src/operator/backup/target/open-target.ts';
  const target = await openBackupTarget({ config: readConfig() });
  await target.check().then(() => console.log('usable'), error => console.log(error.message));`;

describe('logins to a bucket', () => {
  const s3 = use(() => startS3Server('backups'));
  const folder = useFolder();
  const profile = {
    accessKeyId: 'AKIAPROFILE',
    secretAccessKey: 'secret of the profile',
    sessionToken: undefined,
    region: 'eu-west-3',
  };
  const role = {
    accessKeyId: 'ASIAROLE',
    secretAccessKey: 'secret of the role',
    sessionToken: 'token of the role',
    region: 'eu-central-1',
  };
  const sts = use(() => startStsServer(new Map([['a web identity', role]])));

  const check = async (settings: Record<string, string>): Promise<string> => {
    const { stdout, stderr } = await run(process.execPath, ['--input-type=module', '-e', program], {
      cwd: root,
      env: {
        PATH: process.env.PATH ?? '',
        HOME: folder,
        BACKUP_TARGET: 's3://backups/some/prefix',
        AWS_ENDPOINT_URL: s3.environment.AWS_ENDPOINT_URL ?? '',
        AWS_EC2_METADATA_DISABLED: 'true',
        ...settings,
      },
    });
    expect(stderr).to.equal('');
    return stdout.trim();
  };

  before(async () => {
    s3.logins.push(profile, role);
    await writeFile(join(folder, 'config'), '[profile backups]\nregion = eu-west-3\n');
    await writeFile(
      join(folder, 'credentials'),
      `[backups]\naws_access_key_id = ${profile.accessKeyId}\naws_secret_access_key = ${profile.secretAccessKey}\n`,
    );
    await writeFile(join(folder, 'identity'), 'a web identity');
    await writeFile(join(folder, 'other-identity'), 'an identity of somebody else');
  });

  it('a bucket is used with keys of the environment, or of files', async () => {
    const { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION } =
      s3.environment as Record<string, string>;
    expect(
      await check({
        AWS_ACCESS_KEY_ID,
        AWS_SECRET_ACCESS_KEY,
        AWS_SESSION_TOKEN,
        AWS_REGION,
      } as never),
    ).to.equal('usable');

    await writeFile(join(folder, 'secret'), `${AWS_SECRET_ACCESS_KEY}\n`, { mode: 0o600 });
    const byFile = { AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN, AWS_REGION } as Record<string, string>;
    expect(await check({ ...byFile, AWS_SECRET_ACCESS_KEY_FILE: join(folder, 'secret') })).to.equal(
      'usable',
    );
  });

  it('a bucket is used with the keys and the region of a profile', async () => {
    expect(
      await check({
        AWS_PROFILE: 'backups',
        AWS_CONFIG_FILE: join(folder, 'config'),
        AWS_SHARED_CREDENTIALS_FILE: join(folder, 'credentials'),
      }),
    ).to.equal('usable');
  });

  it('a bucket is used with the login that a web identity is exchanged for', async () => {
    const settings = {
      AWS_ROLE_ARN: 'arn:aws:iam::123456789012:role/backups',
      AWS_REGION: 'eu-central-1',
      AWS_ENDPOINT_URL_STS: sts.url,
    };

    expect(
      await check({ ...settings, AWS_WEB_IDENTITY_TOKEN_FILE: join(folder, 'identity') }),
    ).to.equal('usable');
    expect(sts.exchanged).to.deep.equal([{ role: settings.AWS_ROLE_ARN, token: 'a web identity' }]);

    const refused = await check({
      ...settings,
      AWS_WEB_IDENTITY_TOKEN_FILE: join(folder, 'other-identity'),
    });
    expect(refused).to.include('InvalidIdentityToken');
    expect(refused).not.to.include('identity of somebody else');
  });

  it('a machine without any login is told what to set', async () => {
    expect(await check({})).to.equal(
      's3://backups/some/prefix cannot be used without a login. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or their _FILE; or give this machine a role or a profile',
    );
  });
});
