import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { owners, SecretBox } from '../../src/control/secret-box.ts';
import { announcedMs, eventually } from '../support/eventually.ts';
import { controlSql, useLogin, useWorld } from '../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('secrets at rest', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  const control = (text: string, values: unknown[] = []) =>
    controlSql<Record<string, unknown>>(world, text, values);

  describe('stored secrets of a tenant', () => {
    /** The stored secrets before the tests; each test restores them. */
    let password: unknown;
    let kid: string;
    let key: unknown;

    before(async () => {
      const [tenant] = await control('select role_password from tenants where id = ?', [
        world.acme.id,
      ]);
      const [signing] = await control('select kid, secret from signing_keys where tenant_id = ?', [
        world.acme.id,
      ]);
      password = tenant?.role_password;
      kid = String(signing?.kid);
      key = signing?.secret;
    });
    afterEach(async () => {
      await control('delete from signing_keys where tenant_id = ? and kid <> ?', [
        world.acme.id,
        kid,
      ]);
      await control('update tenants set role_password = ? where id = ?', [password, world.acme.id]);
      await control('update signing_keys set secret = ? where kid = ?', [key, kid]);
      await eventually(async () => (await acme.get(path)).status === 200, announcedMs);
    });

    it('a database password cannot be decrypted in the row of another tenant', async () => {
      await control(
        'update tenants set role_password = (select role_password from tenants where id = ?) where id = ?',
        [world.globex.id, world.acme.id],
      );
      await expectOnlyAcmeUnavailable();
    });

    it('a signing key cannot be decrypted in the row of another tenant', async () => {
      await control(
        'update signing_keys set secret = (select secret from signing_keys where tenant_id = ?) where kid = ?',
        [world.globex.id, kid],
      );
      await expectOnlyAcmeUnavailable();
    });

    it('a signing key cannot be decrypted under another key id of the same tenant', async () => {
      await control(
        `insert into signing_keys (kid, tenant_id, secret, status) select 'copied', tenant_id, secret, 'retiring'
          from signing_keys where kid = ?`,
        [kid],
      );
      await expectOnlyAcmeUnavailable();
    });

    it('a secret cannot be decrypted in the place of another kind of secret', async () => {
      await control('update tenants set role_password = ? where id = ?', [key, world.acme.id]);
      await expectOnlyAcmeUnavailable();
    });

    it('a truncated or empty secret cannot be decrypted', async () => {
      for (const length of [0, 22, 23, 34, 50, 62]) {
        await control('update signing_keys set secret = substring(?::bytea for ?) where kid = ?', [
          key,
          length,
          kid,
        ]);
        await expectOnlyAcmeUnavailable();
      }
    });

    it('a signing key shorter than 64 bytes is not used', async () => {
      const { secrets } = world.installation;
      for (const length of [0, 1, 32, 63]) {
        await control('update signing_keys set secret = ? where kid = ?', [
          secrets.seal(randomBytes(length), owners.signingKey(world.acme.guid, kid)),
          kid,
        ]);
        await expectOnlyAcmeUnavailable();
      }

      // A key of 64 bytes is used, and tokens that another key signed are rejected.
      await control('update signing_keys set secret = ? where kid = ?', [
        secrets.seal(randomBytes(64), owners.signingKey(world.acme.guid, kid)),
        kid,
      ]);
      await eventually(
        async () => (await acme.get(path)).body.code === 'invalid_token',
        announcedMs,
      );

      expect((await (await world.login(world.acme)).get(path)).status).to.equal(200);
    });

    /**
     * Expects that acme is not served, with a token or at login, that the log says so, and that
     * globex is served.
     */
    async function expectOnlyAcmeUnavailable(): Promise<void> {
      const logsBefore = world.logs.length;
      await eventually(async () => (await acme.get(path)).status !== 200, announcedMs);

      const login = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
        'X-Tenant': world.acme.guid,
      });
      for (const { status, body } of [await acme.get(path), login]) {
        expect(status).to.equal(503);
        expect(body.code).to.equal('unavailable');
        expect(Object.keys(body).sort()).to.deep.equal([
          'code',
          'retryAfter',
          'status',
          'title',
          'traceId',
          'type',
        ]);
      }

      const lines = world.logs
        .slice(logsBefore)
        .map(line => JSON.parse(line) as Record<string, unknown>);
      expect(
        lines.some(
          ({ event, tenant }) => event === 'tenant_secrets_unusable' && tenant === world.acme.guid,
        ),
      ).to.equal(true);

      expect((await globex.get(path)).status).to.equal(200);
    }
  });

  describe('secret box', () => {
    const masterKey = randomBytes(32);
    const box = new SecretBox(masterKey);

    it('a secret box decrypts a secret unchanged for its owner', () => {
      for (const secret of [
        Buffer.alloc(0),
        Buffer.from([0]),
        randomBytes(64),
        randomBytes(10_000),
      ]) {
        expect(box.open(box.seal(secret, 'owner'), 'owner').equals(secret)).to.equal(true);
      }

      expect(
        new SecretBox(masterKey).open(box.seal('pässword', 'owner'), 'owner').toString(),
      ).to.equal('pässword');
    });

    it('a secret cannot be decrypted with another master key, or for another owner', () => {
      const sealed = box.seal('secret', owners.signingKey('guid', 'kid'));
      expect(() =>
        new SecretBox(randomBytes(32)).open(sealed, owners.signingKey('guid', 'kid')),
      ).to.throw();

      for (const owner of [
        owners.signingKey('guid', 'kid2'),
        owners.signingKey('guid2', 'kid'),
        owners.rolePassword('guid'),
        '',
      ]) {
        expect(() => box.open(sealed, owner)).to.throw();
      }
    });

    it('a secret with a changed, removed or added byte cannot be decrypted', () => {
      const sealed = box.seal('secret', 'owner');

      for (let i = 0; i < sealed.length; i++) {
        const changed = Buffer.from(sealed);
        changed[i]! ^= 1;
        expect(() => box.open(changed, 'owner'), `byte ${i}`).to.throw();
        expect(() => box.open(sealed.subarray(0, i), 'owner'), `${i} bytes`).to.throw();
        expect(
          () => box.open(sealed.subarray(i + 1), 'owner'),
          `without the first ${i + 1}`,
        ).to.throw();
      }

      expect(() => box.open(Buffer.concat([sealed, Buffer.alloc(1)]), 'owner')).to.throw();
    });

    it('a secret with a shortened authentication tag cannot be decrypted', () => {
      // AES-GCM itself allows a tag of 4 bytes, for which one of 2³² guesses would be accepted.
      const fingerprint = Buffer.from(box.present.fingerprint);
      for (const length of [4, 8, 12, 15]) {
        const sealed = Buffer.concat([fingerprint, Buffer.alloc(length)]);
        expect(() => box.open(sealed, 'owner')).to.throw(/tag length/);
      }
    });

    it('encrypting a secret twice gives different ciphertexts, which reveal only its length', () => {
      const sealed = Array.from({ length: 100 }, () => box.seal('the same secret', 'owner'));
      expect(new Set(sealed.map(text => text.toString('hex'))).size).to.equal(100);
      expect(new Set(sealed.map(text => text.subarray(22, 34).toString('hex'))).size).to.equal(100);
      expect(sealed.some(text => text.includes('secret'))).to.equal(false);
    });

    it('authentication codes differ by purpose, part and master key', () => {
      const codes = [
        box.mac('a', 'b', 'c'),
        box.mac('a', 'bc'),
        box.mac('a', 'b,c'),
        box.mac('a', 'b', 'c', ''),
        box.mac('ab', 'c'),
        new SecretBox(randomBytes(32)).mac('a', 'b', 'c'),
      ].map(code => code.toString('hex'));

      expect(new Set(codes).size).to.equal(codes.length);
      expect(box.mac('a', 'b', 'c')).to.have.length(32);
      expect(box.mac('a', 'b', 'c').toString('hex')).to.equal(codes[0]);
    });
  });
});
