import { expect } from 'chai';
import { welcome } from '../../src/process/run-service.ts';

describe('what a start prints', () => {
  it('an IPv6 address stands in brackets in each URL', () => {
    const tenant = { guid: '94196991-8ac6-457a-bb31-c744e86ee938', slug: 'demo' };
    const login = { tenant, email: 'admin@demo.test', password: 'x' } as Parameters<typeof welcome>[1];
    const text = welcome({ host: '::1', port: 3000, managementPort: 3001 }, login);
    const urls = text.match(/https?:[^\s')]+/g) ?? [];
    expect(urls.filter(url => !URL.canParse(url))).to.deep.equal([]);
    expect(urls[0]).to.equal('http://[::1]:3000');
  });
});
