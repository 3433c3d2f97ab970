import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import {
  accessTokenLifetimeSeconds,
  clockSkewSeconds,
  keyRetirementSeconds,
  maxRetiredTokenSeconds,
  refreshRepeatSeconds,
  sessionLifetime,
} from '../../../src/control/token-lifetime.ts';
import { rotateKey } from '../../../src/operator/credentials/keys.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, useWorld } from '../../support/world.ts';
import { activeKey } from './forge.ts';

describe('lifetime of tokens and sessions', () => {
  const world = useWorld();

  afterEach(() => {
    world.clock.offsetSeconds = 0;
  });

  it('a retired key verifies longer than any token that it signed is accepted, and at least 30 minutes', () => {
    expect(maxRetiredTokenSeconds).to.be.above(accessTokenLifetimeSeconds + clockSkewSeconds);
    expect(keyRetirementSeconds).to.be.at.least(maxRetiredTokenSeconds);
    expect(keyRetirementSeconds).to.be.at.least(30 * 60);
  });

  it('a token whose key is rotated right after it was signed is accepted until it expires', async () => {
    const client = await world.login(world.acme);
    const { kid } = await activeKey(world, world.acme);
    const { kid: nextKid } = await rotateKey(world.installation, 'acme');
    const acceptedSeconds = accessTokenLifetimeSeconds + clockSkewSeconds;

    await controlSql(
      world,
      `update signing_keys set retired_at = now() - ?::interval where kid = ?`,
      [`${acceptedSeconds} seconds`, kid],
    );
    await controlSql(world, `update tenants set name = 'Rotated' where id = ?`, [world.acme.id]);
    await eventually(
      async () => (await client.get('/api/v1/auth/me')).body.tenantName === 'Rotated',
      announcedMs,
    );

    expect((await activeKey(world, world.acme)).kid).to.equal(nextKid);

    world.clock.offsetSeconds = acceptedSeconds - 20;
    expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
    world.clock.offsetSeconds = acceptedSeconds + 2;
    const { status, body } = await client.get('/api/v1/auth/me');
    expect(status, 'refused as expired, not for its key').to.equal(401);
    expect(body.code, 'refused as expired, not for its key').to.equal('token_expired');
  });

  it('the guide states the lifetime of tokens, and the README states no other one', async () => {
    const stated = async (file: string): Promise<number[]> => {
      const text = (
        await readFile(new URL(`../../../${file}`, import.meta.url), 'utf8')
      ).replaceAll('*', '');
      return [...text.matchAll(/access token\b[^.|]*?(\d+) minutes/gi)].map(
        ([, minutes]) => Number(minutes) * 60,
      );
    };

    const inGuide = await stated('docs/guide/first-call.md');
    expect(inGuide, 'docs/guide/first-call.md').to.not.deep.equal([]);

    for (const seconds of [...inGuide, ...(await stated('README.md'))]) {
      expect(seconds).to.equal(accessTokenLifetimeSeconds);
    }
  });

  it('the guide states for how long a refresh may be repeated', async () => {
    const text = await readFile(
      new URL('../../../docs/guide/first-call.md', import.meta.url),
      'utf8',
    );

    expect(refreshRepeatSeconds).to.equal(60);
    expect(text).to.include('repeat the request, for a minute after the first one');
  });

  it('the guide, the handbook and the settings state the lifetime that sessions have', async () => {
    const { idle, total } = sessionLifetime;

    for (const [file, phrase] of [
      ['docs/guide/first-call.md', `${idle} after the last refresh, ${total} after the login`],
      ['docs/operate/people.md', `After ${total}, remove \`MASTER_KEY_PREVIOUS\``],
      ['.env.example', `sessions from before have ended (${total})`],
    ]) {
      expect(await readFile(new URL(`../../../${file}`, import.meta.url), 'utf8'), file).to.include(
        phrase,
      );
    }
  });
});
