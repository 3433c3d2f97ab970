import { expect } from 'chai';
import { useMigrationFleet } from '../schema/migration-fleet.ts';

describe('doctor of the next build', () => {
  const { runTenant } = useMigrationFleet(2);

  it('a tenant that is behind is an error, which the command mends that doctor prints', async () => {
    const before = JSON.parse((await runTenant(['doctor', '--json'])).stdout).findings;
    const behind = before.filter(({ check }: { check: string }) => check === 'behind');
    const [, command = ''] = /bin\/backoffice (migrate acme)$/.exec(behind[0]?.remedy ?? '') ?? [];
    expect(command, JSON.stringify(before)).to.equal('migrate acme');

    // A process of this build runs, which a terminal would ask about.
    const migrated = await runTenant([...command.split(' '), '--despite-running']);

    expect(migrated.code, migrated.stderr).to.equal(0);
    const after = JSON.parse((await runTenant(['doctor', '--json'])).stdout).findings;
    const left = after.filter(({ check }: { check: string }) => check === 'behind');
    expect(left.map(({ tenant }: { tenant: string }) => tenant)).to.deep.equal(['globex']);
  });
});
