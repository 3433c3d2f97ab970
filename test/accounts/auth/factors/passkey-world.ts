import { expect } from 'chai';
import type { ApiResponse, Client } from '../../../support/client.ts';
import { eventually } from '../../../support/eventually.ts';
import { controlSql, type TestTenant, type World } from '../../../support/world.ts';
import { factorsPath, factorWorld } from './factor-world.ts';
import { SoftwareAuthenticator } from './software-authenticator.ts';

export const passkeysPath = `${factorsPath}/passkeys`;
const loginPath = '/api/v1/auth/login/passkey';
/** The page of both tenants, so that nothing but the service keeps their passkeys apart. */
export const page = 'https://app.example.com';

/** The passkeys of the people of a world. */
export function passkeyWorld(world: World) {
  const { header } = factorWorld(world);
  const loginOptions = (tenant: TestTenant, url = world.url): Promise<ApiResponse> =>
    world.anonymous.at(url).post(`${loginPath}/options`, {}, header(tenant));
  const optionsOf = async (client: Client, origin = page) => {
    const response = await client.post(`${passkeysPath}/options`, {}, { Origin: origin });
    expect(response.status, JSON.stringify(response.body)).to.equal(200);
    return response.body;
  };

  return {
    loginOptions,
    /** The options with which the client adds a passkey. */
    optionsOf,
    loginAlone: (tenant: TestTenant, passkey: unknown, url = world.url): Promise<ApiResponse> =>
      world.anonymous.at(url).post(loginPath, { passkey }, header(tenant)),

    addPasskey: async (client: Client, origin = page) => {
      const authenticator = new SoftwareAuthenticator();
      const passkey = authenticator.create(await optionsOf(client, origin));
      const { status, body } = await client.post(passkeysPath, { passkey });
      expect(status, JSON.stringify(body)).to.equal(201);
      return { authenticator, id: body.id, recoveryCodes: body.recoveryCodes as string[] };
    },

    /**
     * Lets passkeys work on the page, for both tenants, in the processes at these addresses.
     * @param secondPage a further one of the first tenant, whose links in mails then lead to
     *   the page
     */
    setPages: async (urls: readonly string[], secondPage?: string) => {
      const pages = 'update tenants set app_url = ?, passkey_origins = array[?] where guid = ?';
      const ofAcme = secondPage ? [`${page}/{action}#{token}`, secondPage] : [null, page];
      await controlSql(world, pages, [...ofAcme, world.acme.guid]);
      await controlSql(world, pages, [null, page, world.globex.guid]);

      for (const tenant of [world.acme, world.globex]) {
        for (const url of urls) {
          await eventually(async () => (await loginOptions(tenant, url)).status === 200);
        }
      }
    },
  };
}
