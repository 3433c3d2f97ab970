import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { ConfigError } from '../../../src/lib/config/config-error.ts';
import { isPublicAddress } from '../../../src/lib/outgoing/is-public-address.ts';
import { refusedUrl } from '../../../src/lib/outgoing/refused-url.ts';
import { createWebhookSender } from '../../../src/sales/webhooks/send-webhook.ts';
import { isTrusted, type TrustedReceivers } from '../../../src/sales/webhooks/webhook-target.ts';
import { makeCertificate } from '../../support/certificate.ts';
import { freePort } from '../../support/free-port.ts';

const never = new AbortController().signal;
const tenantGuid = '0f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e';
const otherGuid = '1f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e';
const message = { headers: { 'webhook-id': 'evt_1' }, body: '{}', tenantGuid };
/** The receivers that a service trusts, of the tenant unless they name another one. */
const trust = (...receivers: string[]) =>
  readConfig({
    WEBHOOK_TRUSTED_RECEIVERS: receivers
      .map(each => (each.startsWith('http') ? `${tenantGuid}=${each}` : each))
      .join(),
  }).trustedReceivers;

/** Returns why nothing is sent to a URL; undefined for an allowed one. */
const refusalOf = (url: string, trusted: TrustedReceivers): string | undefined =>
  refusedUrl(url, isTrusted(url, trusted));

describe('the sender of webhooks', () => {
  const closers: (() => unknown)[] = [];
  afterEach(async () => {
    for (const close of closers.splice(0)) await close();
  });

  const listen = async (server: Server | ReturnType<typeof createTcpServer>): Promise<number> => {
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    closers.push(
      () => server.close(),
      () => 'closeAllConnections' in server && server.closeAllConnections(),
    );
    return (server.address() as AddressInfo).port;
  };
  const serve = (listener: RequestListener) => listen(createServer(listener));
  const createSender = (options: Partial<Parameters<typeof createWebhookSender>[0]> = {}) => {
    const sender = createWebhookSender({ trusted: [], timeoutMs: 60_000, ...options });
    closers.unshift(() => sender.close());
    return sender;
  };
  const sendTo = async (listener: RequestListener, options = {}) => {
    const port = await serve(listener);
    const sender = createSender({ trusted: trust(`http://127.0.0.1:${port}/`), ...options });
    return sender.send({ ...message, url: `http://127.0.0.1:${port}/hook` }, never);
  };

  /** Makes a certificate of a name, which issues itself. */
  async function createCertificate(name: string): Promise<{ cert: string; key: string }> {
    const folder = await mkdtemp(join(tmpdir(), 'certificate-'));
    closers.push(() => rm(folder, { recursive: true }));
    const files = [join(folder, 'certificate'), join(folder, 'key')] as const;
    await makeCertificate(name, files);
    const [cert, key] = await Promise.all(files.map(file => readFile(file, 'utf8')));
    return { cert: cert as string, key: key as string };
  }

  /** Sends a message to a receiver that a tenant may choose, at a public port. */
  async function sendToPublic(listener: RequestListener) {
    const { cert, key } = await createCertificate('hooks.example.com');
    const server = createTlsServer({ cert, key }, listener);
    // An address of the loopback network that no other test has, for the port is given.
    const address = `127.${[1, 2, 3].map(() => 1 + Math.floor(Math.random() * 250)).join('.')}`;
    await new Promise<void>(resolve => server.listen(8443, address, resolve));
    closers.push(
      () => server.close(),
      () => server.closeAllConnections(),
    );

    const sender = createSender({
      ca: cert,
      resolve: async () => [{ address, family: 4 }],
      isAllowed: each => each === address,
    });
    return sender.send({ ...message, url: 'https://hooks.example.com:8443/hook' }, never);
  }

  it('no address that is not public is accepted, in whatever form it is written', () => {
    const refused = [
      '127.0.0.1',
      '127.255.255.254',
      '10.0.0.1',
      '172.16.0.1',
      '192.168.1.1',
      '169.254.169.254',
      '100.64.0.1',
      '100.100.100.200',
      '0.0.0.0',
      '0.1.2.3',
      '224.0.0.1',
      '239.255.255.255',
      '240.0.0.1',
      '255.255.255.255',
      '192.0.0.1',
      '192.0.2.1',
      '198.18.0.1',
      '198.51.100.1',
      '203.0.113.1',
      '168.63.129.16',
      '::',
      '::1',
      '::127.0.0.1',
      '::ffff:127.0.0.1',
      '::ffff:8.8.8.8',
      '::ffff:0:8.8.8.8',
      '64:ff9b::8.8.8.8',
      'fe80::1',
      'fec0::1',
      'fc00::1',
      'fd00:ec2::254',
      'ff02::1',
      '2002:7f00:1::',
      '2001:db8::1',
      '2001::1',
      'x',
    ];
    expect(refused.filter(isPublicAddress)).to.deep.equal([]);

    const accepted = [
      '8.8.8.8',
      '93.184.215.14',
      '2606:4700:4700::1111',
      '2a00:1450:4001:800::200e',
    ];
    expect(accepted.filter(isPublicAddress)).to.deep.equal(accepted);
  });

  it('a URL is refused for its scheme, port, credentials, fragment, or an address in any spelling', () => {
    const refused = [
      'http://hooks.example.com/',
      'ftp://hooks.example.com/',
      'https://hooks.example.com:8080/',
      'hooks',
      '',
      'https://localhost/',
      'https://localhost./',
      'https://db.internal/',
      'https://printer.local/',
      'https://intranet/',
      'https://user@hooks.example.com/',
      'https://:secret@hooks.example.com/',
      'https://hooks.example.com/#x',
      'https://hooks.example.com/a b',
      'https://hooks.example.com/a\tb',
      'https://127.0.0.1/',
      'https://0x7f.1/',
      'https://2130706433/',
      'https://0177.0.0.1/',
      'https://[::1]/',
      'https://[::ffff:127.0.0.1]/',
      'https://169.254.169.254/latest/',
      'https://127.0.0.1:8443/',
    ];
    expect(
      refused.filter(url => refusalOf(url, trust('http://other.example:8080/')) === undefined),
    ).to.deep.equal([]);

    for (const url of [
      'https://hooks.example.com/',
      'https://hooks.example.com:8443/x?y=1',
      'https://8.8.8.8/',
    ]) {
      expect(refusalOf(url, []), url).to.equal(undefined);
    }
  });

  it('a trusted receiver is one scheme, host and port, and a path by its whole segments', () => {
    const trusted = trust(
      'http://127.0.0.1:8080/hooks/in',
      'https://a.internal:9000/',
      'http://[::1]:80/x%2Cy/',
    );
    const allowed = [
      'http://127.0.0.1:8080/hooks/in',
      'http://127.0.0.1:8080/hooks/in/',
      'http://127.0.0.1:8080/hooks/in?all=%2f..%2f',
      'http://127.0.0.1:8080/hooks/in/deeper/still?x=1',
      'http://127.0.0.1:8080/hooks/in/a%20b...;c/.well-known',
      'HTTP://0x7f.1:8080/hooks/%69n',
      'https://A.internal:9000',
      'https://a.internal:9000/any/thing',
      'http://[0::1]/x,y',
    ];
    for (const url of allowed) expect(refusalOf(url, trusted), url).to.equal(undefined);

    const refused = [
      'https://127.0.0.1:8080/hooks/in',
      'http://127.0.0.1:8081/hooks/in',
      'http://127.0.0.2:8080/hooks/in',
      'http://127.0.0.1/hooks/in',
      'http://127.0.0.1:8080/',
      'http://127.0.0.1:8080/hooks',
      'http://127.0.0.1:8080/hooks/inside',
      'http://127.0.0.1:8080/hooks/IN',
      'http://127.0.0.1:8080/hooks//in',
      'http://127.0.0.1:8080//hooks/in',
      'http://127.0.0.1:8080/hooks;x/in',
      'http://127.0.0.1:8080/admin/reset?x=/hooks/in',
      'http://127.0.0.1:8080/?/hooks/in',
      'http:127.0.0.1:8080/hooks/in',
      'http:/127.0.0.1:8080/hooks/in',
      'http:///127.0.0.1:8080/hooks/in',
      'https://a.internal.:9000/',
      'https://a.internal:9000@b.internal:9000/',
    ];
    for (const url of refused) expect(refusalOf(url, trusted), url).to.be.a('string');
  });

  it('a URL of a trusted receiver with a backslash, or a slash or dot segment in any encoding, is refused', () => {
    const trusted = trust('http://127.0.0.1:8080/hooks', 'http://b.internal/');
    const hidden = [
      '/../admin',
      '/./x',
      '/..',
      '/x/../../hooks/y',
      '\\..\\admin',
      '/x\\..\\..',
      '/%2e%2e/admin',
      '/%2E./admin',
      '/.%2e',
      '/%2e',
      '/..%2fadmin',
      '/x%2Fy',
      '/x%5cy',
      '/%252e%252e%252fadmin',
      '/x%252fy',
      '/x%25252fy',
      '/%c0%ae%c0%ae/admin',
      '/x%c0%afy',
      '/x%e0%80%afy',
      '/%ef%bc%8e%ef%bc%8e/admin',
      '/x%ef%bc%8fy',
      '/\uff0e\uff0e/admin',
      '/..;/admin',
      '/..;a=b/admin',
      '/%2e%2e;/admin',
      '/..%20/admin',
      '/x%00y',
      '/x%0d%0ay',
      '/x%',
      '/x%zzy',
    ];

    for (const path of hidden) {
      for (const base of ['http://127.0.0.1:8080/hooks', 'http://b.internal']) {
        expect(refusalOf(`${base}${path}`, trusted), path).to.be.a('string');
      }
    }
  });

  it('trusted receivers are guids with URLs that have a path, and nothing else', () => {
    expect(trust(` ${tenantGuid.toUpperCase()}=HTTP://A.internal:80/x/ ,,`)).to.deep.equal([
      { tenantGuid, origin: 'http://a.internal', segments: ['x'] },
    ]);

    for (const wrong of [
      'a.internal:8080',
      'http://a.internal:8080/',
      '=http://a.internal/',
      'northwind=http://a.internal/',
      '*=http://a.internal/',
      `${tenantGuid}`,
      `${tenantGuid}=`,
      `${tenantGuid}=a.internal:8080/`,
      `${tenantGuid}=ftp://a.internal/`,
      `${tenantGuid}=http://a.internal:8080`,
      `${tenantGuid}=http://a:99999/`,
      `${tenantGuid}=http://user@a/`,
      `${tenantGuid}=http://a/?x=1`,
      `${tenantGuid}=http://a/#x`,
      `${tenantGuid}=http://a b/`,
      `${tenantGuid}=http://a/x/../y`,
      `${tenantGuid}=http://a/x%2fy`,
      `${tenantGuid}=http://a/x\\y`,
    ]) {
      expect(() => readConfig({ WEBHOOK_TRUSTED_RECEIVERS: wrong }), wrong).to.throw(
        ConfigError,
        /^WEBHOOK_TRUSTED_RECEIVERS must be .* bin\/backoffice show prints the guid$/,
      );
    }
  });

  it('a receiver that is trusted for one tenant gets nothing of another tenant, nor at another path', async () => {
    const paths: unknown[] = [];
    const port = await serve((request, response) => {
      paths.push(request.url);
      response.end();
    });
    const sender = createSender({
      trusted: trust(`http://127.0.0.1:${port}/own`, `${otherGuid}=http://127.0.0.1:${port}/other`),
    });
    const send = (path: string, guid: string) =>
      sender.send({ ...message, tenantGuid: guid, url: `http://127.0.0.1:${port}${path}` }, never);

    for (const [path, guid] of [
      ['/own', otherGuid],
      ['/other', tenantGuid],
      ['/own/%2e%2e/other', tenantGuid],
      ['/own', ''],
    ] as const) {
      expect(await send(path, guid), path).to.include({ error: 'refused address', status: null });
    }
    expect(await send('/own/x', tenantGuid)).to.include({ error: null });
    expect(await send('/other', otherGuid)).to.include({ error: null });
    expect(paths).to.deep.equal(['/own/x', '/other']);
  });

  it('the text of a response of a trusted receiver is dropped, whatever its status', async () => {
    for (const status of [200, 302, 404, 410, 500]) {
      const result = await sendTo((_, response) => {
        response.writeHead(status, { Location: '/secret' }).end('a trace with a password');
      });
      expect(result).to.include({ status, response: null });
      expect(JSON.stringify(result)).not.to.match(/secret|password/);
    }
  });

  it('a name with one address that is not public is refused, and nothing is connected to', async () => {
    const connections: unknown[] = [];
    const port = await listen(createTcpServer(socket => connections.push(socket.destroy())));

    for (const address of ['127.0.0.1', '10.1.2.3', '169.254.169.254', '::1', '::ffff:127.0.0.1']) {
      const family = address.includes(':') ? 6 : 4;
      const found = [
        { address: '8.8.8.8', family: 4 },
        { address, family },
      ];
      const sender = createSender({ resolve: async () => found });

      const result = await sender.send({ ...message, url: 'https://rebound.example:8443/' }, never);
      expect(result, address).to.include({ status: null, error: 'refused address' });
    }

    const unknown = createSender({ resolve: async () => Promise.reject(new Error('ENOTFOUND')) });
    expect(await unknown.send({ ...message, url: 'https://no.example/' }, never)).to.include({
      error: 'refused address',
    });

    expect(connections).to.deep.equal([]);
    expect(port).to.be.above(0);
  });

  it('a name is resolved once for a connection, to the address that was checked, and stays the Host', async () => {
    const hosts: unknown[] = [];
    const port = await serve((request, response) => {
      hosts.push(request.headers.host);
      response.end();
    });

    const addresses = ['127.0.0.1', '127.0.0.2'];
    let lookups = 0;
    const resolve = async () => [{ address: addresses[lookups++] as string, family: 4 }];
    const sender = createSender({ trusted: trust(`http://hooks.test:${port}/`), resolve });

    const result = await sender.send({ ...message, url: `http://hooks.test:${port}/` }, never);
    expect(result).to.include({ error: null, status: 200 });
    expect(hosts).to.deep.equal([`hooks.test:${port}`]);
    expect(lookups).to.equal(1);
  });

  it('over TLS, the receiver is asked for the name of the URL, and its certificate must be of that name', async () => {
    const { cert, key } = await createCertificate('hooks.test');

    const names: unknown[] = [];
    const server = createTlsServer({ cert, key }, (request, response) => {
      names.push((request.socket as TLSSocket).servername, request.headers.host);
      response.end();
    });
    const port = await listen(server);

    const resolve = async () => [{ address: '127.0.0.1', family: 4 }];
    const trusted = trust(`https://hooks.test:${port}/`, `https://other.test:${port}/`);
    const send = (host: string, ca?: string) =>
      createSender({ trusted, resolve, ...(ca && { ca }) }).send(
        { ...message, url: `https://${host}:${port}/` },
        never,
      );

    expect(await send('hooks.test', cert)).to.include({ error: null, status: 200 });
    expect(names).to.deep.equal(['hooks.test', `hooks.test:${port}`]);

    expect(await send('other.test', cert), 'another name').to.include({
      status: null,
      error: 'TLS',
    });
    expect(await send('hooks.test'), 'an unknown authority').to.include({
      status: null,
      error: 'TLS',
    });
    expect(names).to.have.length(2);
  });

  it('a redirect is a failure that is not followed', async () => {
    const paths: unknown[] = [];
    const result = await sendTo((request, response) => {
      paths.push(request.url);
      response.writeHead(302, { Location: '/elsewhere' }).end();
    });
    expect(result).to.include({ status: 302, error: 'unsuccessful response' });
    expect(paths).to.deep.equal(['/hook']);
  });

  it('of a response of 10 MB the first KiB is kept and at most some 64 KiB are read', async () => {
    let sent = 0;
    const result = await sendToPublic((_, response) => {
      const send = (): void => {
        while (sent < 10_000_000) {
          sent += 10_000;
          if (!response.write('x'.repeat(10_000))) return void response.once('drain', send);
        }
        response.end();
      };
      send();
    });

    expect(result).to.include({ error: null, status: 200, response: 'x'.repeat(1024) });
    expect(sent).to.be.below(10_000_000);
  });

  it('a receiver that hangs, closes early or is not there leads to an error that reveals nothing else', async () => {
    expect(await sendTo(() => {}, { timeoutMs: 100 })).to.include({
      status: null,
      error: 'timeout',
    });

    const switching =
      'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n';
    const switched = sendTo(request => request.socket.write(switching), { timeoutMs: 100 });
    expect(await switched, '101').to.include({ status: null, error: 'timeout' });

    expect(await sendTo(request => request.socket.destroy())).to.include({
      status: null,
      error: 'no connection',
    });

    const port = await freePort();
    const sender = createSender({ trusted: trust(`http://127.0.0.1:${port}/`) });
    const absent = await sender.send({ ...message, url: `http://127.0.0.1:${port}/` }, never);
    expect(absent).to.include({ status: null, error: 'no connection' });

    const plain = await serve((_, response) => void response.end());
    const secure = createSender({ trusted: trust(`https://127.0.0.1:${plain}/`) });
    expect(await secure.send({ ...message, url: `https://127.0.0.1:${plain}/` }, never)).to.include(
      { error: 'TLS' },
    );
  });

  it('a status arrives although the body is cut off, and Retry-After is read as seconds or as a date', async () => {
    const cut = await sendTo((_, response) => {
      response.writeHead(200, { 'Content-Length': '100' });
      response.write('begun', () => response.destroy());
    });
    expect(cut).to.include({ error: null, status: 200 });

    const busy = await sendTo(
      (_, response) => void response.writeHead(503, { 'Retry-After': '120' }).end('busy'),
    );
    expect(busy).to.include({ status: 503, retryAfterMs: 120_000 });

    const dates = {
      Date: 'Fri, 01 Jan 2100 12:00:00 GMT',
      'Retry-After': 'Fri, 01 Jan 2100 12:02:00 GMT',
    };
    const later = await sendTo((_, response) => void response.writeHead(429, dates).end());
    expect(later, 'by the clock of the receiver').to.include({
      status: 429,
      retryAfterMs: 120_000,
    });

    const gone = await sendTo((_, response) => void response.writeHead(410).end());
    expect(gone).to.include({ status: 410 });
  });

  it('an attempt that the process cuts off at its stop is no failure', async () => {
    const stopping = new AbortController();
    const port = await serve(() => stopping.abort());
    const sender = createSender({ trusted: trust(`http://127.0.0.1:${port}/`) });
    expect(
      await sender.send({ ...message, url: `http://127.0.0.1:${port}/` }, stopping.signal),
    ).to.equal(undefined);
  });
});
