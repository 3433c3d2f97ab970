import { randomBytes } from 'node:crypto';
import { userInfo } from 'node:os';
import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { ConfigError } from '../../../src/lib/config/config-error.ts';
import { mailWarnings } from '../../../src/lib/config/mail-warnings.ts';
import { normalPostgresUrl, parsePostgresUrl } from '../../../src/lib/config/postgres-url.ts';

const key = randomBytes(32).toString('hex');
const read = (settings: Record<string, string>) => readConfig({ MASTER_KEY: key, ...settings });

describe('settings that are URLs', () => {
  it('a URL of PostgreSQL is read as libpq reads it, as providers print it, and has one spelling', () => {
    const me = userInfo().username;
    const spellings = {
      'postgresql://u:p@db.internal:6000/office': 'postgresql://u:p@db.internal:6000/office',
      'POSTGRES://u:p@db.internal/office': 'postgresql://u:p@db.internal/office',
      'postgresql://u:p@ss@db.internal/office': 'postgresql://u:p%40ss@db.internal/office',
      'postgresql://u%40tenant:p@db.internal/office':
        'postgresql://u%40tenant:p@db.internal/office',
      "postgresql://u:p@db.internal/o'hara": 'postgresql://u:p@db.internal/o%27hara',
      'postgresql://u:p@db.internal/caf%C3%A9%20%231%3F%2F2':
        'postgresql://u:p@db.internal/caf%C3%A9%20%231%3F%2F2',
      'postgresql://u:p@[::1]:6000/office': 'postgresql://u:p@[::1]:6000/office',
      'postgresql://db.internal/office?user=u&password=p%20q':
        'postgresql://u:p%20q@db.internal/office',
      'postgresql:///office?host=db.internal&port=6000': `postgresql://${me}@db.internal:6000/office`,
      'postgresql:///office?host=/run/postgresql': `postgresql:///office?host=/run/postgresql&user=${me}`,
      'postgresql://u:p@/office?host=/run/postgresql':
        'postgresql:///office?host=/run/postgresql&user=u&password=p',
      'postgresql://u@%2Frun%2Fpostgresql:6000/office':
        'postgresql:///office?host=/run/postgresql&port=6000&user=u',
      'postgresql://u:p@/office?host=/cloudsql/project:region:instance':
        'postgresql:///office?host=/cloudsql/project%3Aregion%3Ainstance&user=u&password=p',
      'postgresql://u:p@ep-cool.eu.neon.tech/office?sslmode=require&channel_binding=require':
        'postgresql://u:p@ep-cool.eu.neon.tech/office?sslmode=require',
      'postgresql://u:p@ep.neon.tech/office?options=endpoint%3Dep-cool':
        'postgresql://u:p@ep.neon.tech/office?options=endpoint%3Dep-cool',
      'postgresql://u:p@db.internal/office?ssl=true':
        'postgresql://u:p@db.internal/office?sslmode=verify-full',
      'postgresql://u:p@db.internal/office?schema=public&connection_limit=1&pgbouncer=true&application_name=x':
        'postgresql://u:p@db.internal/office',
    };

    for (const [text, spelling] of Object.entries(spellings)) {
      expect(normalPostgresUrl(text), text).to.equal(spelling);
      expect(normalPostgresUrl(spelling), spelling).to.equal(spelling);
      expect(URL.canParse(spelling), spelling).to.equal(true);
    }
    expect(parsePostgresUrl("postgresql://u:p@h/o'hara%20%26%20s%C3%B6hne").database).to.equal(
      "o'hara & söhne",
    );
  });

  it('a URL of PostgreSQL that cannot be used is refused by the name of its setting, with what to do, and without its text', () => {
    const refusals = {
      'mysql://u:secret@db.internal/office':
        /must be a URL that begins with postgresql:\/\/ or postgres:\/\/$/,
      'jdbc:postgresql://db.internal/office?password=secret':
        /must be a URL that begins with postgresql:/,
      'host=db.internal password=secret': /must be a URL that begins with postgresql:/,
      'postgresql://u:secret@one.internal,two.internal/office':
        /names several hosts: give one address/,
      'postgresql://u:secret@one.internal:5432,two.internal:5432/office': /names several hosts/,
      'postgresql://u:secret@/office?host=one.internal,two.internal': /names several hosts/,
      'postgresql://u:sec%ret@db.internal/office':
        /has a % that does not begin an encoded letter: write it as %25$/,
      'postgresql://u:sec%C3ret@db.internal/office': /has a % that/,
      'postgresql://u:secret#1@db.internal/office': /has a # in it: write it as %23$/,
      'postgresql://u:sec/ret@db.internal/office':
        /has a port that is not a number: percent-encode .*\/ is %2F/,
      'postgresql://u:5/secret@db.internal/office':
        /has a \/ or @ in the name of its database: percent-encode/,
      'postgresql://u:sec?ret@db.internal/office':
        /has a port that is not a number: percent-encode/,
      'postgresql://u:secret@db.internal/my office':
        /has a space or a line break in it: write a space as %20$/,
      'postgresql://u:secret@db.internal\n/office': /has a space or a line break/,
      'postgresql://u:secret@db.internal\u200B/office': /has an invisible character in it/,
      'postgresql://u:secret\uFFFD@db.internal/office': /has a letter that is not UTF-8/,
      'postgresql://u:secret@db.internal:99999/office': /has a port that is not a number/,
      'postgresql://u:secret@/office':
        /names no host: write one before the \/, or \?host=\/run\/postgresql/,
      'postgresql://u:secret@db.internal': /names no database: write one after the host/,
      'postgresql://u:secret@db.internal/office?sslmode=verify':
        /has the parameter sslmode, which must be one of disable/,
      'postgresql://u:secret@db.internal/office?hostaddr=10.0.0.1':
        /has the parameter hostaddr, .*: remove it$/,
      'postgresql://u:secret@db.internal/office?service=main':
        /has the parameter service, .*: remove it$/,
    };

    for (const [text, sentence] of Object.entries(refusals)) {
      expect(() => read({ DATABASE_URL: text }), text)
        .to.throw(ConfigError, /^DATABASE_URL /)
        .with.property('message')
        .that.matches(sentence)
        .and.not.matches(/secret|sec\/|sec%|sec\?/);
    }
  });

  it('URLs of Redis, of mail servers and of HTTP that cannot be used are refused in the same way', () => {
    const refusals = {
      REDIS_URL: {
        'redis://:sec%ret@redis.internal:6379': /has a % that does not begin an encoded letter/,
        'redis://redis.internal/cache':
          /must have the number of a database after the host, such as \/0$/,
        'redis://one.internal:6379,two.internal:6379': /names several hosts: give one$/,
        'redis://:se/cret@redis.internal': /has a host or a port that is none: percent-encode/,
        'redis:///0': /names no host$/,
        'unix:///run/redis.sock': /must be a URL that begins with redis:\/\/ or rediss:\/\/$/,
        'redis://%2Frun%2Fredis.sock': /names a Unix socket, which is not supported/,
        'redis://redis.internal?tls=true': /must have no \? in it/,
      },
      SMTP_URL: {
        'smtp://u:sec%ret@mail.internal': /has a % that/,
        'mail.internal:25': /must be a URL that begins with smtp:\/\/ or smtps:\/\/$/,
        'smtp://one.internal,two.internal': /names several hosts/,
      },
      PUBLIC_URL: {
        'https://erp.example.com?tenant=1': /must have no \? in it: paths are added to it$/,
        'https://erp.example.com/#/start': /has a # in it/,
        'https://erp.example.com/backoffice/':
          /must have no path in it, such as \/backoffice: .* such as https:/,
        'https://u:secret@erp.example.com': /must have no login in it: everybody sees it$/,
        'erp.example.com': /must be a URL that begins with http:\/\/ or https:\/\/$/,
      },
      AWS_ENDPOINT_URL: { 's3.internal:9000': /must be a URL that begins with http:/ },
      OTEL_EXPORTER_OTLP_ENDPOINT: { 'collector:4318': /must be a URL that begins with http:/ },
    };

    for (const [name, texts] of Object.entries(refusals)) {
      for (const [text, sentence] of Object.entries(texts)) {
        expect(() => read({ [name]: text }), text)
          .to.throw(ConfigError, new RegExp(`^${name} `))
          .with.property('message')
          .that.matches(sentence)
          .and.not.matches(/secret|se\/cret|sec%/);
      }
    }
  });

  it('a scheme in capital letters means the same, so REDISS:// uses TLS', () => {
    const config = read({
      REDIS_URL: 'REDISS://redis.internal:6379/1',
      SMTP_URL: 'SMTPS://mail.internal',
    });
    expect(config.redisUrl).to.equal('rediss://redis.internal:6379/1');
    expect(config.smtpUrl).to.equal('smtps://mail.internal');
  });
});

describe('every setting', () => {
  it('every setting may have a byte order mark, white space, an invisible character and a pair of quotes around it', () => {
    const settings = {
      DATABASE_URL: ['postgresql://u:p@db.internal/office', 'databaseUrl'],
      REDIS_URL: ['redis://redis.internal:6379', 'redisUrl'],
      SMTP_URL: ['smtp://mail.internal', 'smtpUrl'],
      PUBLIC_URL: ['https://erp.example.com', 'publicUrl'],
      MAIL_FROM: ['Office <a@b.example>', 'mailFrom'],
      PORT: ['8080', 'port'],
      HOST: ['0.0.0.0', 'host'],
      LOG_LEVEL: ['warn', 'logLevel'],
      CONNECTION_BUDGET: ['40', 'connectionBudget'],
      KEEP_ALIVE_TIMEOUT: ['80s', 'keepAliveMs'],
      PROCESSES: ['1', 'processes'],
      DOCS: ['off', 'docs'],
      CORS_ORIGINS: ['https://app.example.com', 'corsOrigins'],
    } as const;
    const around = [(text: string) => `\uFEFF${text}`, (text: string) => ` ${text}\t\r\n`];
    around.push(
      text => `${text}\u200B`,
      text => `"${text}"`,
      text => ` '${text}' `,
      text => `\uFEFF"${text}"\r\n`,
    );

    for (const [name, [text, property]] of Object.entries(settings)) {
      const plain = read({ [name]: text })[property];
      for (const wrap of around) {
        expect(read({ [name]: wrap(text) })[property], JSON.stringify(wrap(text))).to.deep.equal(
          plain,
        );
      }
    }
    expect(read({ MASTER_KEY: `\uFEFF"${key}"\n` }).masterKey?.toString('hex')).to.equal(key);
  });

  it('quotes that belong to a value stay in it', () => {
    expect(read({ MAIL_FROM: '"Blue Harbour" <a@b.example>' }).mailFrom).to.equal(
      '"Blue Harbour" <a@b.example>',
    );
  });
});

describe('settings of mails', () => {
  const warnings = (settings: Record<string, string>) =>
    mailWarnings(read(settings)).map(each => each.split(':')[0]);

  it('a mail server without a sender or an address of the service is warned of, and one that may be read on the way', () => {
    const SMTP_URL = 'smtp://mail.internal';
    expect(warnings({})).to.deep.equal([]);
    expect(warnings({ SMTP_URL })).to.deep.equal([
      'SMTP_URL is set and MAIL_FROM is not',
      'SMTP_URL is set and PUBLIC_URL is not',
    ]);

    const complete = { MAIL_FROM: 'a@b.example', PUBLIC_URL: 'https://erp.example.com' };
    expect(warnings({ SMTP_URL, ...complete })).to.deep.equal([]);
    expect(warnings({ SMTP_URL: `${SMTP_URL}?ignoreTLS=true`, ...complete })).to.deep.equal([
      'SMTP_URL allows connections without TLS',
    ]);
  });
});
