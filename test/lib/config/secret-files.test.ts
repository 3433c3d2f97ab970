import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { readConfig, settingWarnings } from '../../../src/lib/config/config.ts';
import { ConfigError } from '../../../src/lib/config/config-error.ts';
import { useFolder } from '../../support/use.ts';

describe('secrets in files', () => {
  const folder = useFolder();
  let path: string;
  const key = randomBytes(32);
  before(async () => {
    path = join(folder, 'secret');
  });

  const secrets = {
    DATABASE_URL: ['postgresql://u:p@127.0.0.1/office', 'databaseUrl'],
    MASTER_KEY: [key.toString('base64'), 'masterKey'],
    MASTER_KEY_PREVIOUS: [key.toString('hex'), 'previousMasterKey'],
    REDIS_URL: ['redis://u:p@127.0.0.1', 'redisUrl'],
    SMTP_URL: ['smtp://u:p@127.0.0.1', 'smtpUrl'],
  } as const;

  for (const [name, [text, property]] of Object.entries(secrets)) {
    it(`${name}_FILE names a file with the value of ${name}; a line feed at its end is removed`, async () => {
      const others = { MASTER_KEY: name.startsWith('MASTER_KEY') ? '' : key.toString('hex') };
      for (const ending of ['', '\n', '\r\n']) {
        await writeFile(path, text + ending, { mode: 0o600 });
        const value = readConfig({ ...others, [`${name}_FILE`]: path })[property];
        expect(value).to.deep.equal(property.endsWith('asterKey') ? key : text);
      }
    });
  }

  it('a secret given twice, or in a missing, empty or invalid file, is refused without its value', async () => {
    await writeFile(path, 'secret-word\n');
    expect(() => readConfig({ MASTER_KEY: 'secret-word', MASTER_KEY_FILE: path })).to.throw(
      ConfigError,
      /^MASTER_KEY and MASTER_KEY_FILE are both set: unset one of them$/,
    );

    expect(() => readConfig({ MASTER_KEY_FILE: path })).to.throw(
      ConfigError,
      /^MASTER_KEY \(from MASTER_KEY_FILE\) must be 32 bytes/,
    );

    expect(() => readConfig({ SMTP_URL_FILE: join(folder, 'nowhere') })).to.throw(
      ConfigError,
      /^SMTP_URL_FILE names a file that cannot be read \(ENOENT\)$/,
    );

    await writeFile(path, '\n');
    expect(() => readConfig({ REDIS_URL_FILE: path })).to.throw(
      ConfigError,
      new RegExp(`^REDIS_URL_FILE names ${path}, which is empty$`),
    );
  });

  it('a secret file may be in UTF-16 with its mark, and is refused by what it is when it is no text or too long', async () => {
    const url = 'redis://127.0.0.1/1';
    const big = Buffer.from(`\uFEFF${url}\r\n`, 'utf16le').swap16();
    for (const bytes of [Buffer.from(`\uFEFF${url}\r\n`, 'utf16le'), big]) {
      await writeFile(path, bytes);
      const config = readConfig({ MASTER_KEY: key.toString('hex'), REDIS_URL_FILE: path });
      expect(config.redisUrl).to.equal(url);
    }

    for (const [bytes, words] of [
      [
        Buffer.from('redis://:caf\u00e9@127.0.0.1', 'latin1'),
        /not text in UTF-8: save it as UTF-8$/,
      ],
      [Buffer.alloc(70_000, 'x'), /more than 64 KiB/],
    ] as const) {
      await writeFile(path, bytes);
      expect(() => readConfig({ REDIS_URL_FILE: path }))
        .to.throw(ConfigError, `REDIS_URL_FILE names ${path}, which `)
        .with.property('message')
        .that.matches(words);
    }
  });

  it('a secret in a named pipe, a folder or a device is refused at once, and a link to a file is read', async () => {
    const pipe = join(folder, 'pipe');
    const makePipe = 'mkfifo';
    execFileSync(makePipe, [pipe]);
    const script = `import { readSecretFiles } from './src/lib/config/secret-files.ts';
      console.log(JSON.stringify(readSecretFiles({ SMTP_URL_FILE: process.argv[1] })))`;

    for (const file of [pipe, folder, '/dev/null']) {
      const args = ['--input-type=module-typescript', '--eval', script, file];
      const output = execFileSync(process.execPath, args, { encoding: 'utf8', timeout: 10_000 });
      expect(JSON.parse(output)).to.deep.equal({
        values: {},
        errors: [`SMTP_URL_FILE names ${file}, which is not a regular file`],
      });
    }

    await writeFile(path, 'redis://127.0.0.1');
    await symlink(path, join(folder, 'link'));
    const config = readConfig({
      MASTER_KEY: key.toString('hex'),
      REDIS_URL_FILE: join(folder, 'link'),
    });
    expect(config.redisUrl).to.equal('redis://127.0.0.1');
  });

  it('a secret file that every login of the machine may read causes a warning', async () => {
    await writeFile(path, key.toString('hex'));
    await chmod(path, 0o644);
    expect(settingWarnings({ MASTER_KEY_FILE: path })).to.deep.equal([
      'Every login of this machine may read the file of MASTER_KEY_FILE: run chmod 600 on it.',
    ]);
    await chmod(path, 0o600);
    expect(settingWarnings({ MASTER_KEY_FILE: path })).to.deep.equal([]);
  });
});
