import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { owners, SecretBox } from '../../../src/control/secret-box.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { runCommand } from '../../support/run-command.ts';
import { useRecoveredServer } from './recovered-server.ts';

describe('restore of the control database from a recovered server', () => {
  const { server, recovered, settings, withCopy } = useRecoveredServer();

  const run = async (script: 'tenant' | 'control', args: string[], input = '') => {
    const result = await runCommand(`scripts/${script}.ts`, [...args, '--json'], settings(), input);
    return {
      ...result,
      message:
        result.code === 0 ? '' : JSON.parse(result.stderr.split('\n')[0] ?? '').error.message,
    };
  };

  it('a control database with tenants is not replaced', async () => {
    const { code, message } = await run('control', ['restore', '--from'], recovered.url);
    expect(code).to.equal(1);
    expect(message).to.match(/^The control database has 2 tenants\./);
  });

  it('a recovered control database has the users of its time and no session, and disables what a later archive has disabled', async () => {
    const before = await server.control('select id, database_name from tenants order by id');
    await server.sql('drop database office with (force)');

    const { code, stdout, stderr } = await run('control', ['restore', '--from'], recovered.url);
    expect(code, stderr).to.equal(0);
    expect(stdout + stderr).not.to.include(new URL(recovered.url).password);

    const restored = JSON.parse(stdout.split('\n')[0] ?? '');
    expect(restored.source).to.match(/^recovered office, last change \d{4}-/);
    expect(restored.report.replayed).to.include({ usersDisabled: 1, clientsRevoked: 0 });

    const users = await server.control(
      `select split_part(email, '@', 1) as name, disabled_at is null as active from users
        where email like '%@acme.test' and email not like 'admin%' order by email`,
    );
    expect(users).to.deep.equal([
      { name: 'nora', active: true },
      { name: 'otto', active: false },
    ]);

    expect(await server.control('select id, database_name from tenants order by id')).to.deep.equal(
      before,
    );
    expect(await server.control('select from sessions where revoked_at is null')).to.deep.equal([]);

    const doctor = await run('tenant', ['doctor']);
    const errors = JSON.parse(doctor.stdout).findings.filter(
      ({ severity }: { severity: string }) => severity === 'error',
    );
    expect(errors).to.deep.equal([]);
  });

  it('a server of another installation or master key, or without the control database, is refused, and nothing is changed', async () => {
    await server.sql('drop database office with (force)');

    await withCopy(async url => {
      const messageOf = async () => (await run('control', ['restore', '--from'], url)).message;
      const inRecovered = (text: string, database = 'office') =>
        withConnection(databaseUrl(url, database), client => client.query(text));

      const { rows } = await inRecovered('select id from installation');
      await inRecovered('update installation set id = gen_random_uuid()');
      expect(await messageOf()).to.match(
        /^The control database of the recovered server is of installation \S+, of which folder \S+ has no archive: nothing was changed\.$/,
      );

      // The canary is sealed by another master key.
      const other = new SecretBox(randomBytes(32));
      const canary = other.seal(rows[0]?.id, owners.canary(rows[0]?.id)).toString('hex');
      await inRecovered(
        `update installation set id = '${rows[0]?.id}', key_fingerprint = '${other.present.fingerprint}',
                master_key_canary = decode('${canary}', 'hex')`,
      );
      expect(await messageOf()).to.match(
        /^MASTER_KEY is not the master key of this control database/,
      );

      await inRecovered('drop database office with (force)', 'postgres');
      expect(await messageOf()).to.equal(
        'The recovered server has no control database office: nothing was changed.',
      );
    });

    expect(await server.sql(`select from pg_database where datname = 'office'`)).to.deep.equal([]);
    expect((await run('control', ['restore'])).code).to.equal(0);
  });
});
