import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';

describe('control reseal', () => {
  const world = useWorld();
  const next = randomBytes(32).toString('base64');

  const sealed = () => controlSql(world, 'select secret from signing_keys order by kid');
  const reseal = (...args: string[]) =>
    runCommand('scripts/control.ts', ['reseal', ...args], {
      ...world.environment,
      MASTER_KEY: next,
      MASTER_KEY_PREVIOUS: world.environment.MASTER_KEY ?? '',
    });

  it('control reseal --dry-run opens and counts the secrets, and changes nothing', async () => {
    const before = await sealed();

    const { code, stdout } = await reseal('--dry-run');

    expect(code).to.equal(0);
    // three of each tenant
    expect(stdout).to.equal('6 secrets would be sealed under MASTER_KEY.\n');
    expect(await sealed()).to.deep.equal(before);
    expect((await world.login(world.globex)).tokens?.accessToken).to.be.a('string');
  });

  it('control reseal names the secret that does not open, and changes nothing', async () => {
    const before = await sealed();
    await controlSql(
      world,
      `update tenants set role_password = convert_to(key_fingerprint || 'damaged', 'UTF8') from installation
        where slug = 'globex'`,
    );

    const { code, stderr } = await reseal('--yes');

    expect(code).to.equal(1);
    expect(stderr).to.equal(
      `Nothing was changed: the secret role_password:${world.globex.guid} opens under neither MASTER_KEY nor ` +
        'MASTER_KEY_PREVIOUS, because its row was changed. Restore the row from a backup, or remove what it belongs to.\n',
    );
    expect(await sealed()).to.deep.equal(before);
  });
});
