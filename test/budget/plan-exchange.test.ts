import { expect } from 'chai';
import { applyChange, type Grant, type ServerGrants } from '../../src/budget/grants.ts';
import { planExchange } from '../../src/budget/plan-exchange.ts';

const budget = 80;
const silence = { isSilent: () => false, isGone: () => false };

/** A process that was killed a moment ago: it holds all that a service may have, and is not known to be silent. */
const killed: Grant = {
  holder: 'killed',
  kind: 'service',
  granted: 72,
  held: 20,
  wanted: 0,
  reserved: 4,
  budget,
  heartbeat: 9,
};

/** Runs one exchange of a service that has no connections to tenants; by default, it has requests. */
function exchange(server: ServerGrants, holder: string, wanted = 3, settings = { budget, base: 4 }): ServerGrants {
  const own = server.grants.find(grant => grant.holder === holder);
  const situation = { kind: 'service', ...settings, server, holder, silence } as const;
  const heartbeat = (own?.heartbeat ?? 0) + 1;
  return applyChange(server, planExchange({ ...situation, held: 0, wanted, heartbeat }).change);
}

const grantOf = ({ grants }: ServerGrants, holder: string) => {
  const { granted, reserved } = grants.find(grant => grant.holder === holder) ?? {};
  return { granted, reserved };
};

describe('planned exchange of grants', () => {
  it('a service that starts beside the grant of a killed one gets a connection to the control database and one to a tenant', () => {
    const first = exchange({ version: 1, grants: [killed] }, 'new');
    expect(grantOf(first, 'new')).to.deep.equal({ granted: 0, reserved: 1 });
    const second = exchange(first, 'new');
    expect(grantOf(second, 'new')).to.deep.equal({ granted: 1, reserved: 1 });
    expect(grantOf(exchange(second, 'new'), 'new'), 'the rest of the reserve is for others').to.deep.equal({
      granted: 1,
      reserved: 1,
    });
  });

  it('services that start at the same time leave each other a connection for the first exchange', () => {
    let server: ServerGrants = { version: 1, grants: [] };
    const total = () => server.grants.reduce((sum, { granted, reserved }) => sum + granted + reserved, 0);
    for (let round = 0; round < 8; round++) for (const holder of ['a', 'b']) server = exchange(server, holder, 200);
    expect(total()).to.equal(budget - 4 - 8);
    for (let round = 0; round < 3; round++) for (const holder of ['a', 'b']) server = exchange(server, holder, 200);
    expect(total(), 'when they are no longer new').to.equal(budget - 4);
  });

  it('a service that starts beside older ones gets its share of the free connections at once', () => {
    const old: Grant = { ...killed, holder: 'old', granted: 20, heartbeat: 9 };
    let server: ServerGrants = { version: 1, grants: [old] };
    for (let round = 0; round < 2; round++) server = exchange(server, 'new', 200);
    expect(grantOf(server, 'new').granted).to.equal(budget - 4 - 24 - 4);
  });

  it('a service that starts beside others with all connections turns its share into connections to the control database', () => {
    const settings = { budget: 40, base: 4 };
    const busy = (holder: string, granted: number, reserved: number): Grant => ({
      ...{ holder, kind: 'service', granted, held: granted, wanted: 16, reserved, budget: 40, heartbeat: 99 },
    });
    const others = [4, 4, 4, 4, 4, 4, 3].map((reserved, index) => busy(`other ${index}`, index % 4 ? 1 : 2, reserved));
    const own = { ...busy('new', 1, 1), held: 0, wanted: 2 };
    let server: ServerGrants = { version: 1, grants: [...others, own] };
    server = exchange(server, 'new', 0, settings);
    expect(grantOf(server, 'new')).to.deep.equal({ granted: 0, reserved: 2 });
  });

  it('a process without requests keeps two connections for its next ones while another process wants all', () => {
    const [idle, busy] = ['idle', 'busy'].map(holder => ({ ...killed, holder, granted: 30 })) as [Grant, Grant];
    const after = exchange({ version: 1, grants: [idle, { ...busy, wanted: 200 }] }, 'idle', 0);
    expect(grantOf(after, 'idle').granted).to.equal(2);
  });

  it('connections to the control database leave a third of a small budget to tenants', () => {
    let server: ServerGrants = { version: 1, grants: [] };
    for (let round = 0; round < 4; round++) server = exchange(server, 'first', 20, { budget: 10, base: 12 });
    expect(grantOf(server, 'first')).to.deep.equal({ granted: 3, reserved: 6 });
  });

  it('two services that start beside the grant of a killed one do not take more than the budget', () => {
    let server: ServerGrants = { version: 1, grants: [killed] };
    for (let round = 0; round < 4; round++) for (const holder of ['new', 'next']) server = exchange(server, holder);
    const total = server.grants.reduce((sum, { granted, reserved }) => sum + granted + reserved, 0);
    expect(total).to.be.at.most(budget);
    for (const holder of ['new', 'next']) expect(grantOf(server, holder).reserved).to.equal(1);
  });
});
