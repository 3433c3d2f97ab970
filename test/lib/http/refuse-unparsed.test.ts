import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { rawRequest, sendRaw } from '../../support/raw-http.ts';
import { useWorld } from '../../support/world.ts';

describe('bytes that are no request', () => {
  const world = useWorld();

  const cases: [name: string, sent: string, status: number, code: string][] = [
    ['no HTTP at all', 'SSH-2.0-OpenSSH_9.6\r\n\r\n', 400, 'invalid_request'],
    [
      'a chunk without a size',
      rawRequest('POST /api/v1/auth/login', ['Transfer-Encoding: chunked'], 'zz\r\n'),
      400,
      'invalid_request',
    ],
    [
      'more than 16 KiB of headers',
      rawRequest('GET /', [`X-Long: ${'x'.repeat(17_000)}`]),
      431,
      'headers_too_large',
    ],
    [
      'more than 16 KiB of chunk extensions',
      rawRequest(
        'POST /api/v1/auth/login',
        ['Transfer-Encoding: chunked'],
        `2;${'x'.repeat(17_000)}\r\n{}\r\n0\r\n\r\n`,
      ),
      413,
      'payload_too_large',
    ],
    ['a request without Host', 'GET /api/v1/EntityStatus HTTP/1.1\r\n\r\n', 400, 'invalid_request'],
    ['a head that never ends', 'GET / HTTP/1.1\r\nHost: x\r\n', 408, 'request_timeout'],
  ];
  for (const [name, sent, status, code] of cases) {
    it(`${name}: the response is ${status} with a problem, and the log has a line with its trace id`, async () => {
      const { text, statuses } = await sendRaw(world.url, sent, { until: /\}$/ });
      expect(statuses).to.deep.equal([status]);

      const [head = '', body = ''] = text.split('\r\n\r\n');
      expect(head)
        .to.match(/^Content-Type: application\/problem\+json/im)
        .and.match(/^Cache-Control: no-store/im);

      const problem = JSON.parse(body);
      expect(problem).to.include({ status, code, type: `/docs/errors#${code}` });
      expect(head).to.match(new RegExp(`^X-Request-Id: ${problem.traceId}`, 'im'));

      const line = await eventually(() =>
        world.logs.map(text => JSON.parse(text)).find(({ traceId }) => traceId === problem.traceId),
      );
      expect(line).to.include({ status, code, ip: '127.0.0.1' });
    });
  }
});
