import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { closedStamp } from '../../../src/operator/databases/store/database-stamp.ts';
import { addByHand, readAddedByHand } from '../../support/added-by-hand.ts';
import { copyServer } from '../../support/copied-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { documentOf } from '../../support/succeed.ts';
import { useRecoveredServer } from './recovered-server.ts';

const readLastChange = `
  select to_char(max(created_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at from audit_log`;

const wrongPassword = 'wrong-and-secret';

describe('restore from a recovered server', () => {
  const { server, recovered, addCurrency, settings, withCopy } = useRecoveredServer();
  let ofAcme: string;
  let ofGlobex: string;
  /** The objects that an operator has added to the database of globex there. */
  let addedByHand: object[];
  /** The time of the last entry of the audit log of globex there. */
  let lastChange: string;
  /** A later time. */
  let moment: string;
  /** The output of every command. */
  const printed: string[] = [];
  /** The password of each recovered server, and the wrong one. */
  const secrets = new Set([wrongPassword]);

  const tenant = async (args: string[], input = '', changes: Record<string, string> = {}) => {
    const result = await runCommand(
      'scripts/tenant.ts',
      [...args, '--json'],
      { ...settings(), ...changes },
      input,
    );
    printed.push(result.stdout, result.stderr);
    return documentOf(result);
  };
  const restoreFrom = (slug: string, url: string, ...options: string[]) => {
    const { password } = new URL(url);
    if (password !== '') secrets.add(password);
    return tenant(['restore', slug, '--from', ...options], url);
  };
  const codesIn = async (database: string): Promise<string[]> =>
    (await server.sql<{ code: string }>('select code from currencies order by id', database)).map(
      ({ code }) => code,
    );
  const databases = () =>
    server.control('select database_name, state from tenant_databases order by id');

  /** Expects that no output and no record shows one of these passwords. */
  async function expectNoPassword(): Promise<void> {
    const stored = await server.control('select * from operator_actions');
    const origins = await server.control('select * from tenant_databases');
    const log = await server.log();
    for (const secret of secrets) {
      expect(JSON.stringify(printed)).not.to.include(secret);
      expect(JSON.stringify([stored, origins, log])).not.to.include(secret);
    }
  }

  before(async () => {
    [ofAcme, ofGlobex] = [await server.databaseOf('acme'), await server.databaseOf('globex')];
    const inGlobex = (text: string) =>
      withConnection(databaseUrl(recovered.url, ofGlobex), client => client.query(text));
    await inGlobex(addByHand);
    addedByHand = (await inGlobex(readAddedByHand)).rows;
    [{ at: lastChange }] = (await inGlobex(readLastChange)).rows;
    moment = new Date().toISOString();
    await addCurrency('globex', 'CAD');
  });
  afterEach(expectNoPassword);

  it('a tenant gets the data of the recovered server beside its own, and another tenant keeps what it has', async () => {
    const own = await server.databaseOf('acme');
    await server.sql(`delete from currencies where code = 'CHF'`, own);
    const others = await codesIn(await server.databaseOf('globex'));

    const { code, document } = await restoreFrom('acme', recovered.url);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme', server: 'default' });
    expect(document.restoredFrom).to.match(
      /^recovered office_tenant_\d+_[0-9a-f]{12}, last change \d{4}-/,
    );

    expect(await codesIn(document.database)).to.deep.equal(['EUR', 'CHF']);
    expect(await server.databaseOf('acme')).to.equal(own);
    expect(await codesIn(own)).to.deep.equal(['EUR']);
    expect(await codesIn(await server.databaseOf('globex'))).to.deep.equal(others);

    const diff = await tenant(['restore', 'diff', 'acme', '--database', document.database]);
    const table = diff.document.tables.find(
      (each: { table: string }) => each.table === 'currencies',
    );
    expect(table).to.include({ added: 0, changed: 0, gone: 1 });
  });

  it('the recovered server stays as it is, and the former name of a tenant is found after a swap', async () => {
    const { document: first } = await restoreFrom('acme', recovered.url);
    const swap = await tenant(['restore', 'swap', 'acme', '--database', first.database, '--yes']);
    expect(swap.code, JSON.stringify(swap.document)).to.equal(0);

    const { code, document } = await restoreFrom('acme', recovered.url);

    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document.restoredFrom).to.include(ofAcme);
    expect(await codesIn(document.database)).to.deep.equal(['EUR', 'CHF']);
    expect(await server.databaseOf('acme')).not.to.equal(ofAcme);
  });

  it('a record that is added after a swap to recovered data gets a number that none has had', async () => {
    const add = async (name: string): Promise<number> => {
      const [row] = await server.sql<{ id: string }>(
        `insert into entities (name, entity_type) values ('${name}', 'customer') returning id`,
        await server.databaseOf('acme'),
      );
      return Number(row?.id);
    };
    const before = [await add('One'), await add('Two')];
    const { document } = await restoreFrom('acme', recovered.url);

    await tenant(['restore', 'swap', 'acme', '--database', document.database, '--yes']);

    expect(await server.databaseOf('acme')).to.equal(document.database);
    expect(await add('Three')).to.be.above(Math.max(...before));
  });

  it('a clone gets the data of the recovered server, with tables and columns that were added by hand, and is a tenant of its own', async () => {
    const { code, document } = await tenant(
      ['clone', 'globex', 'globex-then', '--from'],
      recovered.url,
    );
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(await codesIn(await server.databaseOf('globex-then'))).to.deep.equal(['USD', 'CHF']);
    expect(addedByHand).to.have.length(1);
    expect(await server.sql(readAddedByHand, document.database)).to.deep.equal(addedByHand);
  });

  it('data of a recovered server that are not later than --until are restored, and the last change is printed', async () => {
    const { code, document } = await restoreFrom('globex', recovered.url, '--until', moment);

    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document.restoredFrom).to.equal(`recovered ${ofGlobex}, last change ${lastChange}`);
    expect(await codesIn(document.database)).to.deep.equal(['USD', 'CHF']);
  });

  it('data of a recovered server that are later than --until are refused, to the microsecond, and nothing is changed', async () => {
    const before = await databases();
    const [{ until } = { until: '' }] = await server.control<{ until: string }>(
      `select to_char(timestamptz '${lastChange}' - interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.USTZH:TZM') as until`,
    );

    for (const args of [
      ['restore', 'globex'],
      ['clone', 'globex', 'globex-later'],
    ]) {
      const { code, document } = await tenant([...args, '--from', '--until', until], recovered.url);

      expect(code).to.equal(1);
      expect(document.message).to.match(
        new RegExp(`^The recovered server has a change of ${lastChange}, which is later than `),
      );
    }
    expect(await databases()).to.deep.equal(before);
  });

  it('a server that still recovers, or was recovered to a later time, is refused by --until, and nothing is changed', async () => {
    const before = await databases();
    const target = 'recovery_target_time=2026-01-01 00:00:00+00';
    const cases: [Parameters<typeof copyServer>[1], string, RegExp][] = [
      [{ recovers: true }, moment, / is still recovering: nothing was changed/],
      [
        { extraSettings: [target] },
        '2025-12-31T23:59:59.999999Z',
        / was recovered to 2026-01-01 00:00:00\+00, which is later than 2025-12-31 23:59:59\.999999\+00: /,
      ],
    ];

    for (const [options, until, message] of cases) {
      const copy = await copyServer(server.url, options);
      try {
        const { code, document } = await restoreFrom('globex', copy.url, '--until', until);

        expect(code).to.equal(1);
        expect(document.message).to.match(message);
      } finally {
        await copy.close();
      }
    }
    expect(await databases()).to.deep.equal(before);
  });

  it('a time that is none, has no zone or is in the future, and one without a recovered server, are wrong usage', async () => {
    const refused: [string, RegExp][] = [
      ['2026-11-21T14:05:00', /zone/],
      ['2999-01-01T00:00:00Z', /future/],
      ['2026-02-30T00:00:00Z', /2026-02-30T00:00:00Z is no day of the calendar/],
    ];
    for (const [until, message] of refused) {
      const { document } = await restoreFrom('globex', recovered.url, '--until', until);

      expect(document.code, until).to.equal('usage');
      expect(`${document.message} ${document.hint}`, until).to.match(message);
    }

    const alone = await tenant(['restore', 'globex', '--archive', 'latest', '--until', moment]);

    expect(alone.document).to.include({
      code: 'usage',
      message: 'Give --until together with --from.',
    });
  });

  it('a lost database comes back from the recovered server, with tables and columns that were added by hand, and is served', async () => {
    await server.sql(`drop database "${await server.databaseOf('globex')}" with (force)`);
    const { code, document } = await restoreFrom(
      'globex',
      recovered.url,
      '--lost',
      '--until',
      moment,
    );
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'globex', status: 'active' });
    expect(await codesIn(document.database)).to.deep.equal(['USD', 'CHF']);
    expect(await server.sql(readAddedByHand, document.database)).to.deep.equal(addedByHand);
  });

  it('a database that was closed at the moment is found by the stamp of a closed database', async () => {
    const [{ guid } = { guid: '' }] = await server.control<{ guid: string }>(
      `select guid from tenants where slug = 'globex'`,
    );
    await withCopy(async url => {
      await withConnection(databaseUrl(url, ofGlobex), client =>
        client.query('update tenant_identity set guid = $1', [closedStamp(guid)]),
      );
      const { code, document } = await restoreFrom('globex', url);
      expect(code, JSON.stringify(document)).to.equal(0);
      expect(document.restoredFrom).to.include(ofGlobex);
      expect(await codesIn(document.database)).to.deep.equal(['USD', 'CHF']);
    });
  });

  it('a server of another installation is refused by the stamp of its database, and nothing is changed', async () => {
    await withCopy(async url => {
      // The recovered database has the same name.
      await withConnection(databaseUrl(url, ofAcme), client =>
        client.query('update tenant_identity set guid = gen_random_uuid()'),
      );
      const before = await databases();
      const { code, document } = await restoreFrom('acme', url);
      expect(code).to.equal(1);
      expect(document.message).to.match(
        /has no database of acme that can be read: nothing was changed\.$/,
      );
      expect(document.hint).to.match(/belongs to another tenant, or to another installation\.$/);
      expect(await databases()).to.deep.equal(before);
    });
  });

  it('a server that has no database of the tenant is refused, with the names that were looked for', async () => {
    const { document: made } = await tenant([
      'provision',
      'initech',
      '--name',
      'Initech',
      '--admin',
      'a@initech.test',
    ]);
    const { code, document } = await restoreFrom('initech', recovered.url);
    expect(code, JSON.stringify(made)).to.equal(1);
    expect(`${document.message} ${document.hint}`).to.include(await server.databaseOf('initech'));
  });

  it('a URL is refused as an argument, and when it is no PostgreSQL URL or cannot be used, without being shown', async () => {
    const wrong = new URL(recovered.url);
    wrong.password = wrongPassword;

    const asArgument = await tenant(['restore', 'acme', '--from', wrong.href]);
    expect(asArgument.code).to.equal(2);
    expect(asArgument.document.code).to.equal('usage');

    const noUrl = await restoreFrom('acme', `https://${wrongPassword}@db.test`);
    expect(noUrl.code).to.equal(2);
    expect(noUrl.document.code).to.equal('usage');

    const refused = await restoreFrom('acme', wrong.href);
    expect(refused.document.message).to.equal(
      'The recovered server cannot be used: the password is wrong, or its time has ended (valid until).',
    );

    const both = await restoreFrom('acme', recovered.url, '--archive', 'latest');
    const planned = await restoreFrom('acme', recovered.url, '--archive', 'latest', '--dry-run');
    for (const { document } of [both, planned]) {
      expect(document).to.include({
        code: 'usage',
        message: 'Give either --archive or --from.',
      });
    }
  });

  it('a restore that fails leaves no database, and says why', async () => {
    const before = await databases();
    await withCopy(async url => {
      await withConnection(databaseUrl(url, ofGlobex), client =>
        client.query(`alter table currencies drop constraint currencies_decimal_places_check;
                      update currencies set decimal_places = 7`),
      );
      const { code, document } = await restoreFrom('globex', url);
      expect(code).to.equal(1);
      expect(document.message)
        .to.include('The command has stopped')
        .and.include('globex is served by default, as before');
      expect(await databases()).to.deep.equal(before);
    });
  });

  it('no output, record of an action, or origin of a database has the password of the recovered server', async () => {
    const before = await server.control('select from operator_actions');
    const wrong = new URL(recovered.url);
    wrong.password = wrongPassword;

    expect((await restoreFrom('acme', recovered.url)).code).to.equal(0);
    expect((await restoreFrom('acme', wrong.href)).code).to.equal(1);

    expect([...secrets]).to.include.members([wrongPassword, new URL(recovered.url).password]);
    const stored = await server.control('select from operator_actions');
    expect(stored.length).to.be.above(before.length);
    await expectNoPassword();
  });
});
