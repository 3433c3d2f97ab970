import { parseEnv } from 'node:util';
import { expect } from 'chai';
import { settingNames } from '../../src/lib/config/config.ts';
import { secretVariables } from '../../src/lib/config/secret-files.ts';
import { tracingVariables } from '../../src/lib/config/tracing-settings.ts';
import { podTemplate, readDeploy, readManifests, readYaml } from './read-deploy.ts';

/** Settings that nothing in `deploy/` sets, and why. */
const deliberatelyAbsent: Record<string, string> = {
  PORT: 'the default is the port of the image',
  MANAGEMENT_PORT: 'the default is the port of the image',
  CONTROL_CONNECTIONS: 'the default suits every number of processes',
  ACQUIRE_TIMEOUT_MS: 'the default suits balancers that wait for 60 s',
  RATE_LIMIT_GLOBAL: 'a matter of the clients, not of the deployment',
  RATE_LIMIT_LOGIN: 'a matter of the clients, not of the deployment',
  RATE_LIMIT_FAILURES: 'a matter of the clients, not of the deployment',
  RATE_LIMIT_MAILS: 'a matter of the clients, not of the deployment',
  RATE_LIMIT_PEOPLE: 'a matter of the clients, not of the deployment',
  RATE_LIMIT_ACCOUNT: 'a matter of the clients, not of the deployment',
  PASSWORD_MIN_LENGTH: 'a matter of the people: the default is what NIST asks for',
  RATE_LIMIT_TOKEN: 'a matter of the clients, not of the deployment',
  APP_URL: 'only where an application has pages for the links in mails; the service has its own',
  TRUSTED_HEADER: 'the default is the header that each balancer of deploy/ writes',
  WEBHOOK_TRUSTED_RECEIVERS: 'only for receivers inside the network',
  TRUSTED_PROVIDERS: 'only for providers of sign-in inside the network',
  BACKUP_KEEP:
    'the default keeps every archive of six hours, and one of each of the last twelve months',
  AWS_SESSION_TOKEN: 'for temporary logins, which a deployment would have to renew',
  AWS_ENDPOINT_URL: 'only for stores that are not those of Amazon',
  ...Object.fromEntries(
    Object.keys(tracingVariables).map(name => [name, 'deploy/ has no collector of traces']),
  ),
};

/** Variables of other programs, and of Node. */
const foreign = /^(POSTGRES_|GF_|NODE_EXTRA_CA_CERTS$|NODE_COMPILE_CACHE$)/;

describe('settings in deploy/', () => {
  let used: string[];

  before(async () => {
    used = (await Promise.all([dockerfile(), compose(), kubernetes(), systemd()])).flat();
  });

  it('every variable in deploy/ is a setting of the service', () => {
    const settings = [...settingNames, ...secretVariables.map(name => `${name}_FILE`)];
    expect(settings).to.include.members(used.filter(name => !foreign.test(name)));
  });

  it('every setting of the service is in deploy/, or its absence has a reason', () => {
    const set = new Set(
      used.map(name => (settingNames.includes(name) ? name : name.replace(/_FILE$/, ''))),
    );
    const absent = settingNames.filter(name => !set.has(name));
    expect(absent).to.have.members(Object.keys(deliberatelyAbsent));
  });

  it('each kit that trusts proxies counts them, so that no client in a trusted network chooses its address', async () => {
    const [{ services }] = (await readYaml('compose.yaml')) as [
      { services: Record<string, { environment?: Record<string, string> }> },
    ];
    const kits = [
      ...Object.values(services).map(({ environment = {} }) => environment),
      ...(await Promise.all(
        ['kubernetes/settings.env', 'systemd/service.env', 'systemd/operator.env'].map(async file =>
          parseEnv(await readDeploy(file)),
        ),
      )),
    ];

    const trusting = kits.filter(({ TRUSTED_PROXIES }) => TRUSTED_PROXIES);
    expect(trusting).to.have.length(4);
    for (const { TRUSTED_HOPS } of trusting) expect(TRUSTED_HOPS).to.equal('1');
  });
});

async function dockerfile(): Promise<string[]> {
  const lines = [...(await readDeploy('Dockerfile')).matchAll(/^ENV (.*)$/gm)].map(
    match => match[1] ?? '',
  );
  return lines.flatMap(line => [...line.matchAll(/(\w+)=/g)].map(match => match[1] ?? ''));
}

async function compose(): Promise<string[]> {
  const [{ services }] = (await readYaml('compose.yaml')) as [
    { services: Record<string, { environment?: Record<string, string> }> },
  ];
  return Object.values(services).flatMap(({ environment = {} }) => Object.keys(environment));
}

async function kubernetes(): Promise<string[]> {
  const manifests = await readManifests();
  const pods = manifests.flatMap(({ manifest }) => podTemplate(manifest) ?? []);
  const containers: { env?: { name: string }[] }[] = pods.flatMap(({ spec }) => spec.containers);
  const inPods = containers.flatMap(({ env = [] }) => env.map(({ name }) => name));
  return [...inPods, ...namesIn(await readDeploy('kubernetes/settings.env'))];
}

async function systemd(): Promise<string[]> {
  const unit = await readDeploy('systemd/backoffice.service');
  return [...unit.matchAll(/^Environment=(\w+)=/gm)].map(match => match[1] ?? '');
}

function namesIn(file: string): string[] {
  return [...file.matchAll(/^(\w+)=/gm)].map(match => match[1] ?? '');
}
