import { expect } from 'chai';
import { settingWarnings } from '../../../src/lib/config/config.ts';

describe('variables that resemble settings', () => {
  const meant = {
    DATABSE_URL: 'DATABASE_URL',
    DATABASE_URI: 'DATABASE_URL',
    database_url: 'DATABASE_URL',
    MASTERKEY: 'MASTER_KEY',
    MASTER_KEY_FIEL: 'MASTER_KEY_FILE',
    LOGLEVEL: 'LOG_LEVEL',
    TRUSTED_PROXY: undefined,
    TRUSTED_PROXYS: 'TRUSTED_PROXIES',
    TRUSTED_HOP: 'TRUSTED_HOPS',
    TRUSTED_HOP_COUNT: undefined,
    TRUSTED_HEADERS: 'TRUSTED_HEADER',
    CONNECTIONS_BUDGET: 'CONNECTION_BUDGET',
    CONNECTION_BUDGET_MAX: undefined,
    RATE_LIMIT_LOGINS: 'RATE_LIMIT_LOGIN',
    RATE_LIMIT_REGISTER: undefined,
    CORS_ORIGIN_LIST: undefined,
    MAIL_FORM: 'MAIL_FROM',
    PUBLIC_URLS: 'PUBLIC_URL',
    SHUTDOWN_TIMEOUT: undefined,
  };

  for (const [name, setting] of Object.entries(meant)) {
    it(`the variable ${name} causes a warning${setting ? ` that suggests ${setting}` : ''}`, () => {
      const remedy = setting
        ? `did you mean ${setting}?`
        : 'docs/operate/reference.md lists the settings.';
      expect(
        settingWarnings({ [name]: 'secret-word', PORT: '3000', DATA_DIR: '/data' }),
      ).to.deep.equal([`${name} is not a setting and has no effect: ${remedy}`]);
    });
  }

  it('a former setting causes one warning, which says what is done in its place', () => {
    expect(settingWarnings({ RECOVERY_COMMAND: '/opt/recover' })).to.deep.equal([
      'RECOVERY_COMMAND is not a setting any more and has no effect: recover the server yourself, then run ' +
        'bin/backoffice restore <slug> --from --until <time> < url-file (docs/operate/restore.md, ' +
        '"Recover a server to a moment").',
    ]);
  });

  it('settings, empty variables and common variables of shells, npm and platforms cause no warning', () => {
    const common =
      'PATH HOME USER SHELL LANG LC_ALL TERM PWD TMPDIR HOSTNAME HOSTS PORTS MAIL EDITOR LOGNAME TZ NODE_ENV ' +
      'NODE_OPTIONS NODE_EXTRA_CA_CERTS CI DEBUG npm_config_cache npm_package_name HTTP_PROXY HTTPS_PROXY ' +
      'NO_PROXY http_proxy HTTP_URL FTP_URL XDG_DATA_DIRS XDG_DATA_HOME DATABASE_HOST DATABASE_NAME ' +
      'DATABASE_POOL_URL REDIS_HOST REDIS_PORT REDIS_SERVICE_HOST REDIS_PORT_6379_TCP_ADDR ' +
      'KUBERNETES_SERVICE_HOST KUBERNETES_PORT MANAGEMENT_SERVICE_HOST MANAGEMENT_SERVICE_PORT ' +
      'MANAGEMENT_PORT_80_TCP SMTP_HOST SMTP_PASSWORD PGHOST PGPORT PGUSER PGPASSWORD PGDATABASE DYNO ' +
      'WEB_CONCURRENCY MEMORY_AVAILABLE RAILWAY_PUBLIC_DOMAIN RENDER_EXTERNAL_URL WEBSITE_HOSTNAME ' +
      'AZURE_TENANT_ID TENANT_ID AWS_REGION OTEL_SERVICE_NAME LOG_FORMAT SSH_CONNECTION INVOCATION_ID ' +
      'JOURNAL_STREAM TEST_POSTGRES_URL';
    const environment = Object.fromEntries(common.split(' ').map(name => [name, 'x']));

    expect(
      settingWarnings({ ...environment, DATABSE_URL: ' ', MASTER_KEY: 'x', RATE_LIMIT_LOGIN: 'x' }),
    ).to.deep.equal([]);
  });
});
