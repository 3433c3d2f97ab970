import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, createServer, type IncomingMessage, request, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import fc from 'fast-check';
import Koa from 'koa';
import { pino } from 'pino';
import { readConfig } from '../../../src/lib/config/config.ts';
import { ConfigError } from '../../../src/lib/config/config-error.ts';
import { clientAddresses, clientNetwork } from '../../../src/lib/http/request/client-address.ts';
import { ProxyNotices } from '../../../src/lib/http/request/proxy-notices.ts';
import { problemDetails } from '../../../src/lib/http/steps/problem-details.ts';
import { createRateLimitStore } from '../../../src/lib/http/steps/rate-limit/rate-limit-store.ts';
import { createRateLimits } from '../../../src/lib/http/steps/rate-limit/rate-limits.ts';
import { Problem } from '../../../src/lib/problems.ts';
import { requestListener } from '../../../src/lib/seams/request-listener.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

const statuses = '/api/v1/EntityStatus';

const silent = pino({ level: 'silent' });

/** Returns the function that a service with these settings finds addresses by. */
function addressesWith(settings: Record<string, string>) {
  const { trustedProxies } = readConfig(settings);
  return clientAddresses(trustedProxies, new ProxyNotices(silent, trustedProxies.header));
}

/** Returns the address that a service with these settings finds for a request of 127.0.0.1. */
function addressWith(settings: Record<string, string>, headers: Record<string, string>): string {
  return addressesWith({ TRUSTED_PROXIES: '127.0.0.1', ...settings })({
    socket: { remoteAddress: '127.0.0.1', localAddress: '127.0.0.1' },
    headers,
  } as unknown as IncomingMessage);
}

/** Returns the address that a service with these trusted proxies finds for a request. */
function addressFor(trustedProxies: string, remoteAddress: string, forwardedFor?: string): string {
  const headers = forwardedFor === undefined ? {} : { 'x-forwarded-for': forwardedFor };
  return addressesWith({ TRUSTED_PROXIES: trustedProxies })({
    socket: { remoteAddress, localAddress: '127.0.0.1' },
    headers,
  } as unknown as IncomingMessage);
}

describe('client addresses in the audit log and the access log', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  /** Returns the address in the audit entry of a change made with these headers. */
  async function auditedAddress(
    client: Client,
    headers: Record<string, string>,
  ): Promise<string | undefined> {
    const { status, body } = await client.post(statuses, { Title: 'From somewhere' }, headers);
    expect(status).to.equal(201);
    const [entry] = await sql<{ ip_address: string }>(
      world.acme,
      `select ip_address from audit_log where resource = 'EntityStatus' and record_key = $1`,
      [String(body.Id)],
    );
    return entry?.ip_address;
  }

  it('without a trusted proxy, the client address is the address of the peer, whatever the headers say', async () => {
    for (const name of [
      'X-Forwarded-For',
      'X-Real-IP',
      'X-Client-IP',
      'CF-Connecting-IP',
      'True-Client-IP',
      'X-Cluster-Client-IP',
    ]) {
      expect(await auditedAddress(admin, { [name]: '203.0.113.7' }), name).to.equal('127.0.0.1');
    }
    expect(await auditedAddress(admin, { Forwarded: 'for=203.0.113.7' })).to.equal('127.0.0.1');
  });

  it('behind trusted proxies, the client address is the rightmost untrusted address in X-Forwarded-For', async () => {
    const { url } = await world.startAnotherServer({ TRUSTED_PROXIES: '127.0.0.1, 10.0.0.0/8' });
    const client = admin.at(url);

    const expected: Record<string, string> = {
      '203.0.113.7': '203.0.113.7',
      '198.51.100.1, 203.0.113.7': '203.0.113.7',
      '203.0.113.7, 10.1.2.3': '203.0.113.7',
      '198.51.100.1,203.0.113.7 ,10.1.2.3, 10.9.9.9': '203.0.113.7',
      '::ffff:203.0.113.7': '203.0.113.7',
      '::ffff:cb00:7107': '203.0.113.7',
      '203.0.113.7, ::ffff:10.1.2.3': '203.0.113.7',
      '203.0.113.7, ::FFFF:0a01:0203': '203.0.113.7',
      '2001:db8::7': '2001:db8::7',
      '10.1.2.3': '10.1.2.3',
    };

    for (const [sent, address] of Object.entries(expected)) {
      expect(await auditedAddress(client, { 'X-Forwarded-For': sent }), sent).to.equal(address);
    }

    expect(
      await auditedAddress(client, { 'X-Real-IP': '203.0.113.7', Forwarded: 'for=203.0.113.7' }),
    ).to.equal('127.0.0.1');
  });

  it('when the last element of X-Forwarded-For is not an address, the client address is the proxy', async () => {
    const { url } = await world.startAnotherServer({ TRUSTED_PROXIES: '127.0.0.0/8' });
    const client = admin.at(url);

    for (const sent of [
      'unknown',
      ' , ,',
      '203.0.113.7:http',
      '203.0.113.7:',
      '[203.0.113.7]',
      '2001:db8:0:0:0:0:0:7:4711',
      '[2001:db8::7',
      '"203.0.113.7',
      '_gateway',
      'for=203.0.113.7',
      `fe80::1%${'x'.repeat(4_000)}`,
      '203.0.113.7.9',
      '203.0.113.7, unknown',
      '0x7f.1',
      '3405803783',
      '0313.0.0161.7',
      'x'.repeat(4_096),
      `' or '1'='1`,
    ]) {
      expect(await auditedAddress(client, { 'X-Forwarded-For': sent }), sent.slice(0, 40)).to.equal(
        '127.0.0.1',
      );
    }
  });

  it('a proxy that is missing in TRUSTED_PROXIES is reported once per process, and a trusted one is not', async () => {
    const warnings = () => world.logs.filter(line => line.includes('"untrusted_proxy"'));
    const [untrusting, trusting] = await Promise.all([
      world.startAnotherServer(),
      world.startAnotherServer({ TRUSTED_PROXIES: '127.0.0.1' }),
    ]);

    const before = warnings().length;
    await admin.at(trusting.url).get(statuses, { 'X-Forwarded-For': '203.0.113.7' });
    await admin.at(untrusting.url).get(statuses);
    expect(warnings()).to.have.length(before);

    for (let i = 0; i < 3; i++) {
      await admin.at(untrusting.url).get(statuses, { 'X-Forwarded-For': '203.0.113.7' });
    }
    expect(warnings()).to.have.length(before + 1);
    expect(JSON.parse(warnings().at(-1) ?? '')).to.include({
      event: 'untrusted_proxy',
      peer: '127.0.0.1',
      level: 40,
    });
  });

  it('a client whose own address is in a trusted network chooses no address with TRUSTED_HOPS, in no tenant', async () => {
    const { url } = await world.startAnotherServer({
      TRUSTED_PROXIES: '127.0.0.1,10.0.0.0/8',
      TRUSTED_HOPS: '1',
      RATE_LIMIT_LOGIN: '5/15m',
    });

    for (const [tenant, client] of [
      [world.acme, '10.20.30.40'],
      [world.globex, '10.20.30.41:50000'],
    ] as const) {
      const anonymous = world.anonymous.at(url);
      const statuses: number[] = [];
      for (let attempt = 1; attempt <= 7; attempt++) {
        const { status } = await anonymous.post(
          '/api/v1/auth/login',
          { email: tenant.admin.email, password: `wrong ${attempt}` },
          { 'X-Tenant': tenant.slug, 'X-Forwarded-For': `203.0.113.${attempt}, ${client}` },
        );
        statuses.push(status);
      }
      expect(statuses).to.deep.equal([401, 401, 401, 401, 401, 429, 429]);
    }

    expect(
      await auditedAddress(admin.at(url), { 'X-Forwarded-For': '203.0.113.7, 10.20.30.40' }),
    ).to.equal('10.20.30.40');
  });

  it('several lines of Forwarded are one list, in the audit log of each tenant', async () => {
    const { url } = await world.startAnotherServer({
      TRUSTED_PROXIES: '127.0.0.1',
      TRUSTED_HOPS: '2',
      TRUSTED_HEADER: 'Forwarded',
    });
    for (const tenant of [world.acme, world.globex]) {
      const { tokens } = await world.login(tenant);
      const sent = request(`${url}${statuses}`, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${tokens?.accessToken}`,
          'Content-Type': 'application/json',
          Forwarded: ['for="', 'for="[2001:db8::7]:4711";host="a, b"', 'for=10.0.0.1'],
        },
      }).end('{"Title":"From two lines"}');
      const [response] = await once(sent, 'response');
      response.resume();
      expect(response.statusCode).to.equal(201);

      const [entry] = await sql<{ ip_address: string }>(
        tenant,
        `select ip_address from audit_log where resource = 'EntityStatus' order by id desc limit 1`,
      );
      expect(entry?.ip_address).to.equal('2001:db8::7');
    }
  });

  it('a text of a trusted proxy that is no address has a log line of its own, once per process', async () => {
    const lines = (from: number) =>
      world.logs
        .slice(from)
        .map(line => JSON.parse(line))
        .filter(({ event }) => /_forwarded$|^untrusted_proxy$/.test(event))
        .map(({ event, peer, element }) => ({ event, peer, element }));
    const { url } = await world.startAnotherServer({
      TRUSTED_PROXIES: '127.0.0.1',
      TRUSTED_HOPS: '2',
    });
    const client = admin.at(url);

    const from = world.logs.length;
    await client.get(statuses, { 'X-Forwarded-For': '203.0.113.7, 10.0.0.1' });
    await client.get(statuses);
    expect(lines(from)).to.deep.equal([]);

    for (let i = 0; i < 3; i++) {
      await client.get(statuses, { 'X-Forwarded-For': `1.2.3.4, ${'x'.repeat(1_000)}, 10.0.0.1` });
      await client.get(statuses, { 'X-Forwarded-For': '10.0.0.1' });
      await client.get(statuses, { Forwarded: 'for=203.0.113.7' });
    }
    expect(lines(from)).to.deep.equal([
      { event: 'unreadable_forwarded', peer: '127.0.0.1', element: 'x'.repeat(100) },
      { event: 'few_forwarded', peer: '127.0.0.1', element: undefined },
      { event: 'other_forwarded', peer: '127.0.0.1', element: undefined },
    ]);
  });

  it('the access log line of a request has its client address', async () => {
    const { url } = await world.startAnotherServer({ TRUSTED_PROXIES: '::ffff:7f00:1' });
    for (const sent of ['203.0.113.99', '::ffff:203.0.113.99', '::ffff:cb00:7163']) {
      const { headers } = await admin.at(url).get(statuses, { 'X-Forwarded-For': sent });
      const line = await eventually(() =>
        world.logs.find(line => line.includes(headers.get('x-request-id') ?? '–')),
      );
      expect(JSON.parse(line)).to.include({ ip: '203.0.113.99' });
    }
  });
});

describe('client addresses', () => {
  it('an IPv4 address mapped into IPv6 is the IPv4 address, as a peer, a trusted proxy, a client and a key', () => {
    for (const mapped of [
      '::ffff:1.2.3.4',
      '::FFFF:1.2.3.4',
      '::ffff:102:304',
      '0:0:0:0:0:ffff:0102:0304',
    ]) {
      expect(addressFor('', mapped), mapped).to.equal('1.2.3.4');
      expect(addressFor('1.2.3.4', mapped, '203.0.113.7'), mapped).to.equal('203.0.113.7');
      expect(addressFor(mapped, '1.2.3.4', '203.0.113.7'), mapped).to.equal('203.0.113.7');
      expect(addressFor('127.0.0.1', '127.0.0.1', mapped), mapped).to.equal('1.2.3.4');
      expect(clientNetwork(mapped), mapped).to.equal('1.2.3.4');
    }

    expect(addressFor('::ffff:102:0/112', '1.2.255.255', '203.0.113.7')).to.equal('203.0.113.7');
    expect(addressFor('::ffff:102:0/112', '1.3.0.0', '203.0.113.7')).to.equal('1.3.0.0');
    expect(addressFor('::/0', '1.2.3.4', '203.0.113.7')).to.equal('1.2.3.4');
    expect(addressFor('1.2.3.4', '::1.2.3.4', '203.0.113.7'), 'not a mapped address').to.equal(
      '::102:304',
    );
  });

  it('an IPv6 address is written in one spelling, and a link-local peer keeps its zone', () => {
    expect(addressFor('', '2001:0DB8::0:7')).to.equal('2001:db8::7');
    expect(addressFor('127.0.0.1', '127.0.0.1', '2001:0DB8:0:0:0:0:0:7')).to.equal('2001:db8::7');
    expect(addressFor('', 'fe80::1%eth0')).to.equal('fe80::1%eth0');
    expect(addressFor('fe80::/10', 'fe80::1%br-lan', '203.0.113.7')).to.equal('203.0.113.7');
    expect(addressFor('fe80::/10', 'fe80::1%br-lan')).to.equal('fe80::1%br-lan');
  });

  it('the client is the last trusted proxy before an element of X-Forwarded-For that is not an address', () => {
    expect(
      addressFor('127.0.0.1,10.0.0.0/8', '127.0.0.1', '203.0.113.7, unknown, 10.1.2.3'),
    ).to.equal('10.1.2.3');
  });

  it('TRUSTED_PROXIES lists addresses, networks and unix, and refuses all other text', () => {
    const { networks, unixSocket } = readConfig({
      TRUSTED_PROXIES: ' 10.0.0.0/8,::1 ,unix, ',
    }).trustedProxies;
    expect(networks.map(({ address, bits }) => `${address}/${bits}`)).to.deep.equal([
      '10.0.0.0/8',
      '::1/128',
    ]);
    expect(unixSocket).to.equal(true);
    expect(readConfig({}).trustedProxies).to.deep.equal({
      networks: [],
      unixSocket: false,
      hops: undefined,
      header: 'x-forwarded-for',
    });

    for (const wrong of [
      '10.0.0.0/',
      '10.0.0.0/33',
      '10.0.0.0/-1',
      '10.0.0.0/1e1',
      '10.0.0.0/8/9',
      '::/129',
      '::ffff:0:0/95',
      '10',
      '012.0.0.1',
      'fe80::1%eth0',
      'localhost',
      'unix:/run/proxy.sock',
      '/8',
    ]) {
      expect(() => readConfig({ TRUSTED_PROXIES: `127.0.0.1,${wrong}` }), wrong).to.throw(
        ConfigError,
        /^TRUSTED_PROX/,
      );
    }
  });

  it('TRUSTED_HOPS is a number of proxies, and is refused without TRUSTED_PROXIES', () => {
    expect(readConfig({ TRUSTED_PROXIES: 'unix', TRUSTED_HOPS: '2' }).trustedProxies.hops).to.equal(
      2,
    );

    for (const alone of [{}, { TRUSTED_PROXIES: '' }, { TRUSTED_PROXIES: ' , ' }]) {
      expect(() => readConfig({ ...alone, TRUSTED_HOPS: '1' })).to.throw(
        ConfigError,
        /^TRUSTED_HOPS needs TRUSTED_PROXIES, .*: set TRUSTED_PROXIES to/,
      );
    }
    for (const wrong of ['0', '-1', '1.5', '100', 'all', '1,2', '0x1']) {
      expect(
        () => readConfig({ TRUSTED_PROXIES: '127.0.0.1', TRUSTED_HOPS: wrong }),
        wrong,
      ).to.throw(ConfigError, /^TRUSTED_HOPS must be the number of proxies/);
    }
    expect(() => readConfig({ TRUSTED_HEADER: 'X-Real-IP' })).to.throw(
      ConfigError,
      /^TRUSTED_HEADER must be one of X-Forwarded-For, Forwarded/,
    );
  });

  it('with TRUSTED_HOPS, the client address is the element with that number from the right, and nothing to its left is read', () => {
    const cases: [hops: string, sent: string, address: string][] = [
      ['1', '203.0.113.7', '203.0.113.7'],
      ['1', '198.51.100.1, 203.0.113.7', '203.0.113.7'],
      ['1', '198.51.100.1, 127.0.0.1', '127.0.0.1'],
      ['1', 'unknown, "[, 203.0.113.7:80', '203.0.113.7'],
      ['1', '198.51.100.1, unknown', '127.0.0.1'],
      ['1', '198.51.100.1,', '127.0.0.1'],
      ['2', '198.51.100.1, 203.0.113.7, 127.0.0.1', '203.0.113.7'],
      ['2', '198.51.100.1, 203.0.113.7, unknown', '203.0.113.7'],
      ['2', '198.51.100.1, _hidden, 203.0.113.7', '127.0.0.1'],
      ['2', '203.0.113.7', '127.0.0.1'],
      ['2', '198.51.100.1,,203.0.113.7', '127.0.0.1'],
      ['3', '198.51.100.1, 203.0.113.7', '127.0.0.1'],
      ['3', '[2001:db8::7]:443,10.0.0.1 ,\t10.0.0.2', '2001:db8::7'],
    ];

    for (const [hops, sent, address] of cases) {
      expect(
        addressWith({ TRUSTED_HOPS: hops }, { 'x-forwarded-for': sent }),
        `${hops} of ${sent}`,
      ).to.equal(address);
    }
    expect(addressWith({ TRUSTED_HOPS: '1' }, {}), 'no header').to.equal('127.0.0.1');
    expect(
      addressWith(
        { TRUSTED_PROXIES: '10.0.0.0/8', TRUSTED_HOPS: '1' },
        { 'x-forwarded-for': '203.0.113.7' },
      ),
      'hops are no trust',
    ).to.equal('127.0.0.1');
  });

  it('an address is read with its port, brackets, quotation marks and zone', () => {
    const cases: [sent: string, address: string][] = [
      ['203.0.113.8:49152', '203.0.113.8'],
      ['203.0.113.8:_hidden', '203.0.113.8'],
      ['"203.0.113.8"', '203.0.113.8'],
      ['"203.0.113.8:1"', '203.0.113.8'],
      ['[2001:db8::1]:443', '2001:db8::1'],
      ['[2001:DB8:0::2]', '2001:db8::2'],
      ['"[2001:db8::3]:443"', '2001:db8::3'],
      ['"\\[2001:db8::4\\]"', '2001:db8::4'],
      ['2001:db8::5:443', '2001:db8::5:443'],
      ['[::ffff:203.0.113.8]:443', '203.0.113.8'],
      ['fe80::1%eth0', 'fe80::1'],
      ['[fe80::1%25br-lan]:80', 'fe80::1'],
    ];

    for (const [sent, address] of cases) {
      expect(addressWith({}, { 'x-forwarded-for': sent }), sent).to.equal(address);
      expect(addressWith({ TRUSTED_HOPS: '1' }, { 'x-forwarded-for': sent }), sent).to.equal(
        address,
      );
      const inForwarded = `for=198.51.100.1, for="${sent.replaceAll('"', '')}";proto=https`;
      expect(addressWith({ TRUSTED_HEADER: 'forwarded' }, { forwarded: inForwarded })).to.equal(
        address,
      );
    }
  });

  it('TRUSTED_HEADER=Forwarded reads the parameter for of that header, and X-Forwarded-For is ignored', () => {
    const cases: [sent: string, address: string][] = [
      ['for=203.0.113.7', '203.0.113.7'],
      ['For="203.0.113.7:4711"', '203.0.113.7'],
      ['proto=https;by=10.0.0.1;FOR=203.0.113.7', '203.0.113.7'],
      ['for=203.0.113.7;proto=https; host=api.example.com;', '203.0.113.7'],
      ['for=203.0.113.7:4711;by=_edge', '203.0.113.7'],
      ['for=198.51.100.1, for=203.0.113.7', '203.0.113.7'],
      ['host="a, for=198.51.100.1";for=203.0.113.7', '203.0.113.7'],
      ['for=203.0.113.7;host="a;for=198.51.100.1"', '203.0.113.7'],
      ['for=203.0.113.7;host="a\\", for=198.51.100.1;b=\\"c\\\\"', '203.0.113.7'],
      ['for="198.51.100.1, for=203.0.113.7', '203.0.113.7'],
      ['for=", for="203.0.113.7"', '203.0.113.7'],
      ['for=\\", for="203.0.113.7:1";by="\\\\"', '203.0.113.7'],
      ['for=unknown', '127.0.0.1'],
      ['for="_hidden:80"', '127.0.0.1'],
      ['for=203.0.113.7, for=unknown', '127.0.0.1'],
      ['proto=https;by=203.0.113.7', '127.0.0.1'],
      ['for=203.0.113.7;for=198.51.100.1', '127.0.0.1'],
      ['for=203.0.113.7 for=198.51.100.1', '127.0.0.1'],
      ['xfor=203.0.113.7', '127.0.0.1'],
      ['203.0.113.7', '127.0.0.1'],
      ['for', '127.0.0.1'],
      ['', '127.0.0.1'],
      ['for=203.0.113.7,', '127.0.0.1'],
    ];

    for (const [forwarded, address] of cases) {
      for (const settings of [{}, { TRUSTED_HOPS: '1' }]) {
        expect(
          addressWith(
            { TRUSTED_HEADER: 'Forwarded', ...settings },
            { forwarded, 'x-forwarded-for': '192.0.2.1' },
          ),
          forwarded,
        ).to.equal(address);
      }
    }
    expect(
      addressWith(
        { TRUSTED_HEADER: 'Forwarded', TRUSTED_HOPS: '2' },
        { forwarded: 'for=198.51.100.1, for="[2001:db8::7]:1";proto=https,for=unknown' },
      ),
    ).to.equal('2001:db8::7');
    expect(
      addressWith({}, { forwarded: 'for=192.0.2.1', 'x-forwarded-for': '203.0.113.7' }),
    ).to.equal('203.0.113.7');
  });

  it('a proxy that adds its element to any text of a client is read, however that text is quoted', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('"', '\\', ',', ';', '=', ' ', 'for', '1.2.3.4') }),
        text => {
          const settings = { TRUSTED_HEADER: 'Forwarded', TRUSTED_HOPS: '1' };
          for (const added of ['for=203.0.113.7', 'for="203.0.113.7:80";by="\\"\\\\"']) {
            const forwarded = `${text}, ${added}`;
            expect(addressWith(settings, { forwarded })).to.equal('203.0.113.7');
          }
        },
      ),
    );
  });

  it('the rate limit key of an IPv6 address is its /64 network, the same for all spellings', () => {
    const networks: [string, string][] = [
      ['198.51.100.7', '198.51.100.7'],
      ['2001:db8::1', '2001:db8:0:0::/64'],
      ['2001:0DB8:0:0:1:2:3:4', '2001:db8:0:0::/64'],
      ['::1', '0:0:0:0::/64'],
      ['1::', '1:0:0:0::/64'],
      ['1:2:3:4:5:6:7:8', '1:2:3:4::/64'],
      ['1::4:5:6:7:8', '1:0:0:4::/64'],
      ['64:ff9b::192.0.2.1', '64:ff9b:0:0::/64'],
      ['fe80::1%eth0', 'fe80:0:0:0::/64'],
      ['unknown', 'unknown'],
    ];

    for (const [address, network] of networks) {
      expect(clientNetwork(address), address).to.equal(network);
    }
  });

  it('every IPv6 address is parsed to the same address as in a URL', () => {
    fc.assert(
      fc.property(fc.ipV6(), text => {
        const { hostname } = new URL(`http://[${text}]`);
        fc.pre(!hostname.startsWith('[::ffff:'));
        expect(new URL(`http://[${addressFor('', text)}]`).hostname).to.equal(hostname);
      }),
    );
  });
});

describe('clients without an address', () => {
  let folder: string;
  const servers: Server[] = [];
  /** Client addresses of the requests that passed the rate limit. */
  let passed: string[];
  /** Problem codes of all responses, undefined for a success. */
  let problems: (string | undefined)[];

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'client-address-'));
  });
  beforeEach(() => {
    [passed, problems] = [[], []];
  });
  afterEach(() => {
    for (const server of servers.splice(0)) {
      server.close();
      server.closeAllConnections();
    }
  });
  after(() => rm(folder, { recursive: true }));

  /** A server that limits every client to two requests. */
  async function createLimitedServer(trustedProxies: string): Promise<Server> {
    const log = silent;
    const { trustedProxies: trusted, rateLimits } = readConfig({ TRUSTED_PROXIES: trustedProxies });
    const rates = { ...rateLimits, global: { max: 2, windowMs: 3_600_000 } };

    const store = await createRateLimitStore({ redisUrl: undefined, installationId: 'none', log });
    const limits = createRateLimits({
      rates,
      store,
      draining: new AbortController().signal,
      isPage: () => false,
      loginAccount: () => '',
    });
    const addressOf = clientAddresses(trusted, new ProxyNotices(log, trusted.header));

    const app = new Koa();
    app.use(async (ctx, next) => {
      await next();
      problems.push(ctx.state.problem);
    });
    app.use(problemDetails(log));
    app.use((ctx, next) => {
      ctx.state.ipAddress = addressOf(ctx.req);
      return next();
    });
    app.use(limits.everyRequest);
    app.use(ctx => {
      passed.push(ctx.state.ipAddress);
      ctx.body = 'passed';
    });

    const server = createServer(requestListener(app));
    servers.push(server);
    return server;
  }

  /**
   * Starts a limited server on a Unix socket, and returns a function that opens one client
   * connection.
   */
  async function listenOnUnixSocket(trustedProxies: string) {
    const socketPath = join(folder, `${randomUUID()}.sock`);
    const server = (await createLimitedServer(trustedProxies)).listen(socketPath);
    await once(server, 'listening');
    return () => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      return async (headers: Record<string, string> = {}): Promise<number | undefined> => {
        const [response] = await once(request({ socketPath, agent, headers }).end(), 'response');
        response.resume();
        await once(response, 'end');
        return response.statusCode;
      };
    };
  }

  it('each connection on a Unix socket is one client of the rate limit', async () => {
    const connection = await listenOnUnixSocket('');
    const [first, second] = [connection(), connection()];
    const spoofed = { 'X-Forwarded-For': '203.0.113.7' };

    expect([await first(), await first(spoofed), await first()]).to.deep.equal([200, 200, 429]);
    expect([await second(spoofed), await second(), await second(spoofed)]).to.deep.equal([
      200, 200, 429,
    ]);

    const [one, , other] = passed;
    expect(passed).to.deep.equal([one, one, other, other]);
    expect(one).to.match(/^unix-[\w-]{12}$/);
    expect(other)
      .to.match(/^unix-[\w-]{12}$/)
      .and.not.equal(one);
  });

  it('X-Forwarded-For from a Unix socket is ignored while TRUSTED_PROXIES contains only addresses', async () => {
    const connection = await listenOnUnixSocket('0.0.0.0/0,::/0');
    const proxy = connection();
    expect(await proxy({ 'X-Forwarded-For': '203.0.113.7' })).to.equal(200);
    expect(passed[0]).to.match(/^unix-[\w-]{12}$/);
  });

  it('X-Forwarded-For of a proxy on a Unix socket is used if TRUSTED_PROXIES contains unix', async () => {
    const connection = await listenOnUnixSocket('unix,10.0.0.0/8');
    const [proxy, otherProxy] = [connection(), connection()];
    const from = (address: string) => ({ 'X-Forwarded-For': address });
    expect(await proxy(from('203.0.113.7'))).to.equal(200);
    expect(await otherProxy(from('198.51.100.1, ::ffff:cb00:7107, 10.1.2.3'))).to.equal(200);
    expect(await proxy(from('203.0.113.7'))).to.equal(429);
    expect(await proxy(from('203.0.113.8'))).to.equal(200);
    expect(passed).to.deep.equal(['203.0.113.7', '203.0.113.7', '203.0.113.8']);
  });

  it('a proxy on a Unix socket that forwards no address is one client', async () => {
    const connection = await listenOnUnixSocket('unix');
    const proxy = connection();
    const statuses = [await proxy(), await proxy({ 'X-Forwarded-For': 'unknown' }), await proxy()];
    expect(statuses).to.deep.equal([200, 200, 429]);
    expect(passed[0]).to.match(/^unix-[\w-]{12}$/);
  });

  it('a request of a reset TCP connection, which has no client address to count by, is rejected', async () => {
    for (const trustedProxies of ['', 'unix', '0.0.0.0/0']) {
      const server = (await createLimitedServer(trustedProxies)).listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;

      for (let i = 0; i < 5; i++) {
        const socket = connect(port, '127.0.0.1');
        await once(socket, 'connect');
        socket.write('GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n');
        socket.resetAndDestroy(); // the server reads the request after the reset, or not at all
      }

      expect((await fetch(`http://127.0.0.1:${port}`)).status).to.equal(200);
      expect(passed.splice(0)).to.deep.equal(['127.0.0.1']);
      expect(new Set(problems.splice(0))).to.deep.equal(new Set(['invalid_request', undefined]));
    }
  });

  it('a socket without a peer address counts as a Unix socket only if it is open and never had an address', () => {
    const addressOf = addressesWith({ TRUSTED_PROXIES: 'unix' });
    const read = (socket: object) =>
      addressOf({ socket, headers: {} } as unknown as IncomingMessage);
    expect(read({ destroyed: false })).to.match(/^unix-/);
    for (const socket of [{ localAddress: '127.0.0.1', destroyed: false }, { destroyed: true }]) {
      expect(() => read(socket))
        .to.throw(Problem)
        .and.include({ code: 'invalid_request' });
    }
  });
});
