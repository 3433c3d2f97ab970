import { expect } from 'chai';
import pg from 'pg';
import { owners } from '../../../src/control/secret-box.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { checkSessions } from '../../../src/operator/doctor/check-sessions.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { use } from '../../support/use.ts';

/** With its reserve, twice: 8 + 2 × 6 sessions may be open without a pooler. */
const connectionBudget = 8;

describe('doctor on the sessions of the logins of tenants', () => {
  const server = use(createDedicatedServer);

  /** Opens sessions as a new tenant, as a pooler keeps them. */
  async function openAs(slug: string, count: number): Promise<pg.Client[]> {
    const { tenant } = await server.provision(slug);
    const { databaseName, roleName: user, rolePassword, guid } = tenant;
    const password = server.installation.secrets
      .open(rolePassword, owners.rolePassword(guid))
      .toString();
    const connectionString = databaseUrl(server.url, databaseName, { user, password });

    const sessions = Array.from({ length: count }, () => new pg.Client({ connectionString }));
    await Promise.all(sessions.map(session => session.connect()));
    return sessions;
  }

  it('more of them than the budget allows, over all tenants, are a warning with the settings of a pooler', async () => {
    const sessions = [...(await openAs('acme', 10)), ...(await openAs('globex', 10))];
    const before = await diagnose(server.installation, { connectionBudget });
    sessions.push(...(await openAs('initech', 1)));

    const { findings } = await diagnose(server.installation, { connectionBudget });
    await Promise.all(sessions.map(session => session.end()));

    expect(before.findings).to.deep.equal([]);
    expect(findings).to.have.length(1);
    expect(findings[0]).to.include({ check: 'pooler_keeps_sessions', severity: 'warning' });
    expect(findings[0]?.problem).to.include('more than 20 sessions on the server');
    expect(findings[0]?.remedy).to.include(
      'set server_idle_timeout = 1 and server_login_retry = 1 in its file',
    );
  });

  it('through a pooler the budget alone is allowed, and a command that has no budget compares nothing', () => {
    const pooled = (count: number) =>
      checkSessions({ count, isPooled: true }, connectionBudget).map(({ check }) => check);

    expect(pooled(8)).to.deep.equal([]);
    expect(pooled(9)).to.deep.equal(['pooler_keeps_sessions']);
    expect(checkSessions({ count: 1_000, isPooled: true }, undefined)).to.deep.equal([]);
  });
});
