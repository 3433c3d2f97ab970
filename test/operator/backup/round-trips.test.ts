import { expect } from 'chai';
import { type Installation, openInstallation } from '../../../src/control/installation.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { SessionClient } from '../../../src/lib/postgres/session-client.ts';
import { withBackupLock } from '../../../src/operator/backup/backup-lock.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../../src/operator/backup/target/target.ts';
import { initTarget } from '../../../src/operator/backup/writer.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { runSmall } from '../../support/small-archives.ts';
import { use } from '../../support/use.ts';

describe('round trips of a backup run', () => {
  const server = use(createDedicatedServer);
  const s3 = use(() => startS3Server('backups'));
  let installation: Installation;
  let target: Target;

  /** Counts the statements and the requests of a run in which no tenant has changed. */
  async function count(): Promise<{ statements: number; requests: number }> {
    await runSmall(installation, target);
    const { query } = SessionClient.prototype;
    let statements = 0;
    SessionClient.prototype.query = function counted(this: SessionClient, ...args: unknown[]) {
      statements++;
      return Reflect.apply(query, this, args);
    } as typeof query;
    const requests = s3.requests.length;

    try {
      const { archived, unchanged } = await runSmall(installation, target);
      expect(archived, 'the control database alone').to.equal(1);
      expect(unchanged).to.be.at.least(2);
    } finally {
      SessionClient.prototype.query = query;
    }

    return { statements, requests: s3.requests.length - requests };
  }

  before(async () => {
    installation = await openInstallation(readConfig(server.environment));
    target = await openTarget(readConfig(s3.environment).backup);
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    await withBackupLock(installation.controlUrl, 'archives', control =>
      initTarget(control, target, { takeOver: false, isDryRun: false }),
    );
  });
  after(() => installation.close());

  it('a run that changes nothing asks the control database and the store as often for five tenants as for two', async () => {
    const two = await count();

    for (const slug of ['initech', 'hooli', 'umbrella']) await server.provision(slug);
    const five = await count();

    expect(five).to.deep.equal(two);
    expect(two.requests).to.be.at.most(10);
    expect(two.statements).to.be.at.most(30);
  });
});
