import { expect } from 'chai';
import { parse } from 'yaml';
import { type Compose, expectComposeFields, expectDeclared } from './compose-file.ts';
import { readDeploy, readYaml } from './read-deploy.ts';

describe('compose file', () => {
  let compose: Compose;

  before(async () => {
    compose = ((await readYaml('compose.yaml')) as [Compose])[0];
  });

  it('the compose file has the fields of the Compose specification, and no unknown field', () => {
    expectComposeFields(compose);
  });

  it('the compose file declares every service, secret, volume and network that a service names', () => {
    expectDeclared(compose);
  });

  it('no process of the service and no command is process 1, so that a stop while it starts is not lost', () => {
    const own = Object.entries(compose.services).filter(([, { image }]) =>
      image.includes('BACKOFFICE_IMAGE'),
    );

    expect(own).to.have.length.greaterThan(4);
    for (const [name, { init }] of own) {
      expect(init, name).to.equal(true);
    }
  });

  it('HAProxy and Prometheus name the two processes of the service, which trust the address of HAProxy', async () => {
    const [balancer, prometheus] = await Promise.all(
      ['haproxy/haproxy.cfg', 'prometheus/prometheus.yaml'].map(readDeploy),
    );

    const processes = Object.keys(compose.services).filter(name => /^service-\d/.test(name));
    expect(processes).to.have.length(2);

    for (const name of processes) {
      expect(balancer).to.include(`server ${name} ${name}:3000`);
      expect(prometheus).to.include(`${name}:3001`);

      const { networks } = compose.services.haproxy as {
        networks: Record<string, { ipv4_address: string }>;
      };
      expect(compose.services[name]?.environment?.TRUSTED_PROXIES).to.equal(
        networks.frontend?.ipv4_address,
      );
    }
  });

  it('HAProxy logs no query of a request, where links of mails have their secrets', async () => {
    const haproxy = await readDeploy('haproxy/haproxy.cfg');
    const formats = haproxy.match(/^ *(?:option httplog|log-format .*)$/gm) ?? [];
    expect(formats).to.have.length(1);
    expect(formats[0])
      .to.match(/ %HM %HPO %HV"$/)
      .and.not.match(/%(?:\{[^}]*\})?(?:r|HU|HQ|HP)\b/);
  });

  it('HAProxy ends the request of a client that leaves, and within two minutes that of one that vanishes', async () => {
    const haproxy = await readDeploy('haproxy/haproxy.cfg');
    const [, api = ''] = haproxy.split('\nfrontend api\n');
    const [own = ''] = api.split('\nbackend ');

    expect(haproxy).to.match(/^ {2}option abortonclose$/m);
    const binds = own.match(/^ *(?:# )?bind .*$/gm) ?? [];
    expect(binds).to.have.length(2);
    expect(binds.filter(bind => !/ tcp-ut 60s\b/.test(bind))).to.deep.equal([]);
  });

  it('HAProxy ends a slow head, and one client does not get all of its connections', async () => {
    const haproxy = await readDeploy('haproxy/haproxy.cfg');
    const [, api = ''] = haproxy.split('\nfrontend api\n');
    const [own = ''] = api.split('\nbackend ');
    const [, all] = /^ {2}maxconn (\d+)$/m.exec(haproxy) ?? [];
    const [, ofOne] =
      /^ {2}tcp-request connection reject if \{ sc_conn_cur\(0\) gt (\d+) \}$/m.exec(own) ?? [];

    expect(haproxy).to.match(/^ {2}timeout http-request 10s$/m);
    expect(own).to.match(/^ {2}tcp-request connection track-sc0 src,ipmask\(32,64\)$/m);
    expect(Number(ofOne))
      .to.be.above(0)
      .and.at.most(Number(all) / 10);
  });

  it('the lines for TLS, once the page has uncommented them, serve a mounted certificate on a published port', async () => {
    const uncommented = (await readDeploy('compose.yaml')).replaceAll(
      /^( +)# - (.*(?:8443|haproxy\.pem).*)$/gm,
      '$1- $2',
    );
    const { haproxy } = parse(uncommented, { merge: true }).services;
    const configuration = await readDeploy('haproxy/haproxy.cfg');
    const [, port, certificate] = /^ *# bind :(\d+) ssl crt (\S+)/m.exec(configuration) ?? [];

    expect(haproxy.ports).to.deep.equal(['8080:8080', `443:${port}`]);
    expect(haproxy.volumes).to.include(`./secrets/haproxy.pem:${certificate}:ro`);
  });

  it('no port but that of HAProxy is reachable from other machines, and no secret is in the file', async () => {
    const ports = Object.entries(compose.services).flatMap(([name, { ports = [] }]) =>
      (ports as string[])
        .filter(port => !port.startsWith('127.0.0.1:'))
        .map(port => `${name} ${port}`),
    );
    expect(ports).to.deep.equal(['haproxy 8080:8080']);
    expect(await readDeploy('compose.yaml')).to.not.match(/:\/\/\w+:\w+@|PASSWORD: /);
  });
});
