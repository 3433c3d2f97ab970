import { expect } from 'chai';
import { welcome } from '../../../src/service/process/run-service.ts';

const tenant = { guid: '94196991-8ac6-457a-bb31-c744e86ee938', slug: 'demo' };
const login = { tenant, email: 'admin@demo.test', password: 'x' } as Parameters<typeof welcome>[1];

describe('what a start prints', () => {
  it('an IPv6 address stands in brackets in each URL', () => {
    const text = welcome({ host: '::1', port: 3000, managementPort: 3001, hasProxy: false }, login);
    const urls = text.match(/https?:[^\s')]+/g) ?? [];
    expect(urls.filter(url => !URL.canParse(url))).to.deep.equal([]);
    expect(urls[0]).to.equal('http://[::1]:3000');
  });

  it('the addresses of a service that listens on all addresses are those of this machine, with and without IPv6', () => {
    for (const host of ['::', '0.0.0.0']) {
      const text = welcome({ host, port: 3000, managementPort: 3001, hasProxy: false }, login);
      expect(text.match(/http:[^\s'/]*\/\/[^\s'/]+/g))
        .to.include('http://127.0.0.1:3000')
        .and.not.include(`http://${host}:3000`);
    }
  });

  it('the lines for curl use no proxy where the environment names one, and print errors', () => {
    const lines = (hasProxy: boolean) =>
      welcome({ host: '::1', port: 3000, managementPort: 3001, hasProxy }, login).match(
        /curl .*/g,
      ) ?? [];
    expect(lines(true).filter(line => !line.startsWith(`curl -sS --noproxy '*' `))).to.deep.equal(
      [],
    );
    expect(lines(false).filter(line => !/^curl -sS (?!--noproxy)/.test(line))).to.deep.equal([]);
  });
});
