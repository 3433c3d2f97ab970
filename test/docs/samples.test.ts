import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { pino } from 'pino';
import { readConfig } from '../../src/lib/config/config.ts';
import { provisionDemoTenant } from '../../src/operator/lifecycle/demo-records.ts';
import { readManifest } from '../../src/operator/lifecycle/manifest.ts';
import { curlSample, sampleValues } from '../../src/service/pages/code-samples.ts';
import { endpointGroups } from '../../src/service/pages/reference.ts';
import { startServer } from '../../src/service/server.ts';
import { Client } from '../support/client.ts';
import { root } from '../support/command-line.ts';
import { document } from '../support/contract.ts';
import { createDedicatedServer } from '../support/dedicated-server.ts';
import { eventually } from '../support/eventually.ts';
import { createQuickPasswords } from '../support/quick-passwords.ts';
import { use } from '../support/use.ts';

/**
 * Samples that need what only their reader has: the token of a mail, an API client, the id of a
 * key, a code of an app, a passkey, an ID token, or a role, which an earlier sample has deleted.
 * The rest is pasted as printed.
 */
const needsMore = [
  'postAuthRefresh',
  'postAuthConfirm',
  'postAuthLoginVerify',
  'postAuthLoginSetup',
  'postAuthLoginSetupConfirm',
  'postAuthLoginSetupPasskeyOptions',
  'postAuthLoginSetupPasskey',
  'postAuthLoginPasskeyOptions',
  'postAuthLoginPasskey',
  'postAuthFactorsPasskeysOptions',
  'postAuthFactorsPasskeys',
  'postAuthFactorsByIdConfirm',
  'postAuthFactorsPasskeysByIdConfirm',
  'postAuthFactorsRecoveryCodes',
  'deleteAuthFactorsById',
  'postAuthExchange',
  'postAuthIdentities',
  'postAuthIdentitiesByIdConfirm',
  'deleteAuthIdentitiesById',
  'getRolesByIdSecondFactor',
  'putRolesByIdSecondFactor',
  'getDataGenerateToken',
  'getProgramsByIdKeysByKeyId',
  'deleteProgramsByIdKeysByKeyId',
];
/** The id of the stream, which goes on until its reader ends it. */
const stream = 'getChangesStream';
/** Operations that end things which other samples use. */
const last = ['deleteWebhooksById', 'postAuthLogout'];

describe('samples of the reference', () => {
  /**
   * The server of the samples. Its first tenant is the demo, as after `npm start`: the samples
   * have the ids of its records.
   */
  const server = use(createDedicatedServer);

  it('every sample for curl, pasted as printed in the order of the pages, works with the data of the demo', async function () {
    if (!(await promisify(execFile)('curl', ['--version']).catch(() => undefined))) {
      return this.skip();
    }

    const { installation, environment: settings } = server;
    const passwords = createQuickPasswords();
    const manifest = await readManifest(join(root, 'tenants/demo.json'));
    const { tenant, logins } = await provisionDemoTenant(installation, passwords, manifest);
    const { email, password } = logins[0] as { email: string; password: string };

    const config = readConfig({ ...settings, PORT: '0', MANAGEMENT_PORT: '0' });
    const service = await startServer({
      config,
      installation,
      log: pino({ level: 'silent' }),
      passwords,
    });
    const url = `http://127.0.0.1:${service.port}`;

    const login = await new Client(url).post(
      '/api/v1/auth/login',
      { email, password },
      { 'X-Tenant': tenant.guid },
    );
    const admin = new Client(url, login.body);
    const environment = { ...process.env, TENANT: tenant.guid, TOKEN: login.body.accessToken };

    const samples = endpointGroups(document).flatMap(group => {
      const values = sampleValues(group, url);
      return group.endpoints.map(endpoint => ({
        id: endpoint.id,
        text: curlSample(endpoint, values),
      }));
    });

    const pasted = samples
      .filter(({ id }) => !needsMore.includes(id))
      .sort((one, other) => last.indexOf(one.id) - last.indexOf(other.id));
    expect(pasted.length).to.be.above(75);

    const failures: string[] = [];

    /**
     * Pastes samples into one shell, which prints their bodies, and a line with status and id
     * after each.
     */
    const paste = async (samples: typeof pasted): Promise<void> => {
      const lines = samples.map(({ id, text }) => {
        const sample = text.replace('the password that npm start printed', password);
        const options = id === stream ? '-N --max-time 1' : '';
        return `${sample} -s ${options} -w '\n%{http_code} ${id}\n'\n`;
      });

      const { stdout } = await promisify(execFile)('sh', ['-c', lines.join('')], {
        env: environment,
      });
      for (const { id } of samples) {
        if (!new RegExp(`^2\\d\\d ${id}$`, 'm').test(stdout)) failures.push(`${id}: ${stdout}`);
      }
    };

    const registered = pasted.findIndex(({ id }) => id === 'postAuthRegister') + 1;
    await paste(pasted.slice(0, registered));
    await eventually(async () => (await admin.get('/api/v1/Users')).body.length === 2);
    await paste(pasted.slice(registered));

    await service.stop();
    expect(failures.join('\n')).to.equal('');
  });

  it('the sample of a lookup has the code of the record, also of one that names its country by code', () => {
    const group = endpointGroups(document).find(({ name }) => name === 'TaxCode');
    if (!group) throw new Error('no resource TaxCode');
    const endpoints = group.endpoints.map(endpoint =>
      endpoint.method === 'PUT' && endpoint.body
        ? { ...endpoint, body: { ...endpoint.body, example: { Code: 'EAST', CountryCode: 'FR' } } }
        : endpoint,
    );
    const lookup = endpoints.find(({ id }) => id === 'getTaxCodesCodeByCode');
    if (!lookup) throw new Error('no lookup by code');

    const sample = curlSample(lookup, sampleValues({ ...group, endpoints }, 'http://localhost'));

    expect(sample).to.include('http://localhost/api/v1/TaxCodes/code/EAST');
  });
});
