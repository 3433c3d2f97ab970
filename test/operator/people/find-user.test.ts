import { expect } from 'chai';
import { addSampleUser } from '../../auth/sample-users.ts';
import { runCommand } from '../../support/run-command.ts';
import { useWorld } from '../../support/world.ts';

describe('users of all tenants', () => {
  const world = useWorld();

  const find = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await runCommand(
      'scripts/backoffice.ts',
      ['user', 'find', ...args],
      world.environment,
    );
    expect([code, stderr]).to.deep.equal([0, '']);
    return stdout;
  };

  it('user find lists each tenant that has a user with the address, however that is written, and no other user', async () => {
    const { email } = await addSampleUser(world, world.acme);
    await runCommand(
      'scripts/backoffice.ts',
      ['user', 'add', 'globex', email, '--role', 'Administrator'],
      world.environment,
    );
    await addSampleUser(world, world.globex);
    const found = JSON.parse(await find(` ${email.toUpperCase()}`, '--json'));
    expect(found.map(({ tenant, status, role }: Record<string, string>) => [tenant, status, role])).to.deep.equal([
      ['acme', 'active', 'Member'],
      ['globex', 'active', 'Administrator'],
    ]);
    expect(await find(email, '-o', 'name')).to.equal('acme\nglobex\n');
    expect(await find('nobody@acme.test')).to.equal('No tenant has a user nobody@acme.test.\n');
  });

  it('an index has the users by address, so that the search reads no user of the other tenants', async () => {
    const [plan] = await world.control.em.fork().transactional(async em => {
      await em.execute('set local enable_seqscan = off');
      return em.execute<object[]>(`explain (format json) select from users where email = 'bob@acme.test'`);
    });
    expect(JSON.stringify(plan)).to.include('users_email_index');
  });
});
