import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { curlSample, sampleValues } from '../../src/docs/code-samples.ts';
import { endpointGroups } from '../../src/docs/reference.ts';
import { Client } from '../support/client.ts';
import { document } from '../support/contract.ts';
import { eventually } from '../support/eventually.ts';
import { useStarts } from '../support/starts.ts';

/** Samples that need what only their reader has: the token of a mail, or an API client. The rest is pasted as printed. */
const needsMore = ['postAuthRefresh', 'postAuthConfirm', 'getDataGenerateToken'];
/** It goes on until its reader ends it. */
const stream = 'getChangesStream';
/** They end what other samples use. */
const last = ['deleteWebhooksById', 'postAuthLogout'];

describe('samples of the reference', () => {
  const starts = useStarts();

  it('every sample for curl, pasted as printed in the order of the pages, works with the data of the demo', async function () {
    if (!(await promisify(execFile)('curl', ['--version']).catch(() => undefined))) return this.skip();
    const { url, tenant, user, password = '' } = starts.current;
    const login = await new Client(url).post('/api/v1/auth/login', { email: user, password }, { 'X-Tenant': tenant });
    const admin = new Client(url, login.body);
    const environment = { ...process.env, TENANT: tenant, TOKEN: login.body.accessToken };
    const samples = endpointGroups(document).flatMap(group => {
      const values = sampleValues(group, url);
      return group.endpoints.map(endpoint => ({ id: endpoint.id, text: curlSample(endpoint, values) }));
    });
    const pasted = samples
      .filter(({ id }) => !needsMore.includes(id))
      .sort((one, other) => last.indexOf(one.id) - last.indexOf(other.id));
    expect(pasted.length).to.be.above(75);
    const failures: string[] = [];
    for (const { id, text } of pasted) {
      const sample = text.replace('the password that npm start printed', password);
      const options = id === stream ? '-N --max-time 1' : '';
      const line = `${sample} -s ${options} -w '\n%{http_code}' || [ $? = 28 ]`; // 28: the time is over
      const { stdout } = await promisify(execFile)('sh', ['-c', line], { env: environment });
      if (!/\n2\d\d$/.test(stdout)) failures.push(`${id}: ${stdout}`);
      if (id === 'postAuthRegister') await eventually(async () => (await admin.get('/api/v1/Users')).body.length === 2);
    }
    expect(failures.join('\n')).to.equal('');
  });
});
