import { expect } from 'chai';
import { useLogin, useWorld } from '../../support/world.ts';
import { expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/SystemOptions';

describe('system options', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('a system option is active and created now, unless the request says otherwise', async () => {
    const started = Date.now();
    const { body } = await admin.post(path, { SystemOptionTypeId: 1, Value: 'on' });
    expect(body.IsActive).to.equal(true);
    expect(Date.parse(body.CreatedAt)).to.be.within(started - 1_000, Date.now() + 1_000);

    const inactive = {
      SystemOptionTypeId: 1,
      Value: 'off',
      IsActive: false,
      CreatedAt: '1999-12-31T23:59:59+05:30',
    };
    const { body: older } = await admin.post(path, inactive);
    expect(older).to.include({ IsActive: false, CreatedAt: '1999-12-31T18:29:59.000Z' });
  });

  it('a PUT of a system option changes its CreatedAt only if it sends one', async () => {
    const body = { SystemOptionTypeId: 1, Value: 'on', CreatedAt: '2001-02-03T04:05:06.789Z' };
    const { body: option } = await admin.post(path, body);
    const url = `${path}/${option.Id}`;
    const unmoved = await admin.put(url, { SystemOptionTypeId: 1, Value: 'off', IsActive: false });
    expect(unmoved.body).to.deep.equal({ ...option, Value: 'off', IsActive: false });
    const moved = await admin.put(url, { ...body, CreatedAt: '2002-02-03T04:05:06.789Z' });
    expect(moved.body).to.deep.equal({ ...option, CreatedAt: '2002-02-03T04:05:06.789Z' });
    expect((await admin.get(url)).body).to.deep.equal(moved.body);
  });

  it('a system option with an impossible type or CreatedAt is refused, and nothing is stored', async () => {
    const audited = await newestAudit(admin);

    for (const SystemOptionTypeId of [0, -1, 2 ** 31, 1.5, '1']) {
      const response = await admin.post(path, { SystemOptionTypeId, Value: 'on' });
      expectRefused(response, 400, 'validation_failed', ['SystemOptionTypeId']);
    }

    for (const CreatedAt of [
      '0000-00-00',
      '99999-01-01T00:00:00Z',
      '2026-02-30T00:00:00Z',
      '2026-02-30',
      1_700_000_000,
    ]) {
      const response = await admin.post(path, { SystemOptionTypeId: 1, Value: 'on', CreatedAt });
      expectRefused(response, 400, 'validation_failed', ['CreatedAt']);
    }

    expect(await newestAudit(admin)).to.equal(audited);
  });

  it('the value of a system option keeps line feeds and tabs, and has at most 4,000 characters', async () => {
    const Value = `first\n\tsecond\n${'\u{1f984}'.repeat(3_985)}`;
    const { status, body } = await admin.post(path, { SystemOptionTypeId: 1, Value: `${Value}\n` });
    expect(status).to.equal(201);
    expect(body.Value).to.equal(Value);

    expectRefused(
      await admin.post(path, { SystemOptionTypeId: 1, Value: `${Value}!!` }),
      400,
      'validation_failed',
      ['Value'],
    );
  });

  it('system options are listed by type, then by id', async () => {
    const globex = await world.login(world.globex);
    for (const SystemOptionTypeId of [2, 10, 1, 2, 1]) {
      await globex.post(path, { SystemOptionTypeId, Value: 'on' });
    }
    await globex.put(`${path}/1`, {
      SystemOptionTypeId: 2,
      Value: 'moved to the end of the table',
    });

    const { body } = await globex.get(path);
    const order = body.map(({ SystemOptionTypeId, Id }: Record<string, number>) => [
      SystemOptionTypeId,
      Id,
    ]);

    expect(order).to.deep.equal([
      [1, 3],
      [1, 5],
      [2, 1],
      [2, 4],
      [10, 2],
    ]);
  });
});
