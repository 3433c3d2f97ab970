import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { owners, SecretBox } from '../../../src/control/secret-box.ts';
import { factorWorld } from '../../accounts/auth/factors/factor-world.ts';
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

describe('control reseal of authenticator apps', () => {
  const world = useWorld();
  const people = factorWorld(world);

  it('control reseal seals the keys of authenticator apps of each tenant under the new key', async () => {
    const next = randomBytes(32);
    for (const tenant of [world.acme, world.globex]) {
      await people.addTotp((await people.add(tenant)).client);
    }
    const stored = () =>
      controlSql<{ id: string; guid: string; secret: Buffer }>(
        world,
        'select f.id, t.guid, f.secret from factors f join tenants t on t.id = f.tenant_id order by f.id',
      );
    const opened = (secrets: Pick<SecretBox, 'open'>, rows: Awaited<ReturnType<typeof stored>>) =>
      rows.map(({ id, guid, secret }) =>
        secrets.open(secret, owners.factor(guid, id)).toString('hex'),
      );
    const before = opened(world.installation.secrets, await stored());

    const { code, stderr } = await runCommand('scripts/control.ts', ['reseal', '--yes'], {
      ...world.environment,
      MASTER_KEY: next.toString('base64'),
      MASTER_KEY_PREVIOUS: world.environment.MASTER_KEY ?? '',
    });

    expect(code, stderr).to.equal(0);
    expect(before).to.have.length(2);
    expect(opened(new SecretBox(next), await stored())).to.deep.equal(before);
  });
});
