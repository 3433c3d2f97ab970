import { expect } from 'chai';
import type { TenantRecord } from '../../../src/control/records.ts';
import { Representation } from '../../../src/lib/http/response/representation.ts';
import {
  type CachedResponse,
  ResponseStore,
} from '../../../src/tenancy/response-cache/response-store.ts';

const kilobyte = 1_000;
const maxBytes = 160 * kilobyte;
const maxTenantBytes = maxBytes / 16;

describe('response store', () => {
  let store: ResponseStore<never>;

  beforeEach(() => {
    store = new ResponseStore(maxBytes);
  });

  const record = (guid: string | number) => ({ guid: `${guid}` }) as TenantRecord;
  const find = (tenant: TenantRecord, key = 'list', resource = 'Currency') =>
    store.find(tenant, resource, key);

  /** Stores a response whose body takes about so many bytes. */
  function put(
    tenant: TenantRecord,
    bytes: number,
    key = 'list',
    resource = 'Currency',
  ): CachedResponse {
    // A short body is a string, two bytes for each character; a longer one is a buffer.
    const representation = Representation.of('x'.repeat(bytes > 8_000 ? bytes : bytes / 2));
    const response = { representation, codedBytes: 0, expiresAt: 0 };
    store.set(tenant, resource, store.resource(tenant, resource), key, response);
    return response;
  }

  it('a body that is compressed after it was stored counts, until its response is dropped', () => {
    const [acme, globex] = [record('acme'), record('globex')];
    const response = put(acme, 1_000);
    put(globex, 1_000);
    const before = store.bytes;

    store.grow(acme, 'Currency', 'list', response, 300);
    expect(store.bytes).to.equal(before + 300);
    store.grow(globex, 'Currency', 'list', response, 300); // not stored there
    expect(store.bytes).to.equal(before + 300);

    store.remove('acme/Currency');
    put(acme, 1_000);
    expect(store.bytes).to.equal(before);
  });

  it('a full store evicts the least recently used tenants, and only as many as it needs to', () => {
    const tenants = Array.from({ length: 20 }, (_, i) => record(i));
    for (const tenant of tenants) put(tenant, 6_900);
    for (const tenant of tenants) expect(find(tenant)).not.to.equal(undefined);

    const [first, second, third] = tenants as [TenantRecord, TenantRecord, TenantRecord];
    find(first);
    const newcomer = record('newcomer');
    put(newcomer, 6_900);

    expect(find(second)).to.equal(undefined);
    for (const tenant of [newcomer, first, third]) expect(find(tenant)).not.to.equal(undefined);
    expect(store.bytes).to.be.within(maxBytes - 7_900, maxBytes);
  });

  it('a full store evicts one tenant for each tenant of the same size that is inserted', () => {
    const count = 2_000;
    const tenants = Array.from({ length: 3 * count }, (_, i) => record(i));
    store = new ResponseStore(count * 2 * kilobyte + 1);
    for (const tenant of tenants.slice(0, count)) put(tenant, 996);
    const { bytes } = store;

    for (const tenant of tenants.slice(count)) {
      put(tenant, 996);
      expect(store.bytes).to.equal(bytes);
    }

    expect(tenants.findIndex(tenant => find(tenant))).to.equal(2 * count);
  });

  it('a response that is larger than the share of a tenant is not stored and evicts no other response', () => {
    const tenant = record('acme');
    const small = put(tenant, 10, 'small');
    put(tenant, maxTenantBytes, 'large');
    expect(find(tenant, 'large')).to.equal(undefined);
    expect(find(tenant, 'small')).to.equal(small);
  });

  it('a tenant whose responses exceed its share loses its own responses and no other tenant’s', () => {
    const [acme, globex] = [record('acme'), record('globex')];
    const other = put(globex, kilobyte);
    const { bytes } = store;
    for (let i = 0; i < 1_000; i++) {
      put(acme, kilobyte, `id ${i}`);
      expect(store.bytes - bytes).to.be.within(0, maxTenantBytes);
    }
    expect(find(globex)).to.equal(other);
  });

  it('a response is returned only for the tenant record that it was read for, and a later record drops it', () => {
    const [before, after] = [record('acme'), record('acme')];
    const response = put(before, 10);
    expect(find(after)).to.equal(undefined);
    expect(find(before)).to.equal(response);
    put(after, 10, 'another');
    expect(find(before)).to.equal(undefined);
    expect(find(after)).to.equal(undefined);
  });

  it('a response is not stored when its resource was dropped, or its tenant evicted, after the read began', () => {
    const tenant = record('acme');
    const response = put(tenant, 10);

    for (const key of ['acme/Currency', 'acme', '*']) {
      const resource = store.resource(tenant, 'Currency');
      store.remove(key);
      store.set(tenant, 'Currency', resource, 'late', response);
      store.resource(tenant, 'Currency');
      store.set(tenant, 'Currency', resource, 'late', response);
      expect(find(tenant, 'late')).to.equal(undefined);
    }
  });

  it('a drop removes the responses of one resource, of one tenant, or of all tenants', () => {
    const [acme, globex] = [record('acme'), record('globex')];
    const stored = () =>
      [acme, globex].flatMap(tenant =>
        ['Currency', 'Country'].map(name =>
          find(tenant, 'list', name) ? `${tenant.guid}/${name}` : '',
        ),
      );
    for (const tenant of [acme, globex]) {
      for (const name of ['Currency', 'Country']) put(tenant, 10, 'list', name);
    }

    store.remove('acme/Currency');
    expect(stored()).to.deep.equal(['', 'acme/Country', 'globex/Currency', 'globex/Country']);

    store.remove('acme/Unknown');
    store.remove('unknown/Currency');
    store.remove('unknown');
    store.remove('globex');
    expect(stored()).to.deep.equal(['', 'acme/Country', '', '']);

    store.remove('*');
    expect(stored()).to.deep.equal(['', '', '', '']);
    expect(store.bytes).to.equal(0);
  });

  it('the bytes of a store are those of the stored responses, however often one is replaced', () => {
    const tenant = record('acme');
    put(tenant, 2 * kilobyte);
    const { bytes } = store;

    for (let i = 0; i < 100; i++) put(tenant, 2 * kilobyte);
    expect(store.bytes).to.equal(bytes);
    put(tenant, 4 * kilobyte);
    expect(store.bytes).to.equal(bytes + 2 * kilobyte);

    put(tenant, kilobyte, 'list', 'Country');
    store.remove('acme/Country');
    expect(store.bytes).to.equal(bytes + 2 * kilobyte);
    store.remove('acme/Currency');
    expect(store.bytes).to.equal(0);
  });
});
