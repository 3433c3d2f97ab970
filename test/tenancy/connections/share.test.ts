import { expect } from 'chai';
import { maxProcesses } from '../../../src/lib/config/process-count.ts';
import {
  lostShare,
  minimumShare,
  reserveOf,
  shareOf,
  taskLimit,
} from '../../../src/tenancy/connections/share.ts';

const budgets = [20, 32, 80];
const maxControl = 9;

describe('shares of the connection budget', () => {
  it('the reserve is a tenth of the budget, and at least six', () => {
    expect(budgets.map(reserveOf)).to.deep.equal([6, 6, 8]);
  });

  it('of budgets of 20, 32 and 80, at most 4, 7 and 19 processes run', () => {
    expect(budgets.map(maxProcesses)).to.deep.equal([4, 7, 19]);
  });

  it('the least budget has room for one process, and one of 12 for the next one that starts before it ends', () => {
    expect(maxProcesses(7)).to.equal(0);
    expect(maxProcesses(8)).to.equal(1);
    expect(maxProcesses(12)).to.equal(2);
  });

  it('the shares of all processes and the reserve are the budget at most, as far as the division allows', () => {
    for (let budget = 8; budget <= 200; budget++) {
      for (let services = 1; services <= maxProcesses(budget); services++) {
        const { control, tenants } = shareOf({ budget, services, hasControl: true, maxControl });
        const isMinimum = control + tenants === 4;
        const total = services * (control + tenants) + (isMinimum ? 0 : reserveOf(budget));
        expect(total, `${services} of ${budget}`).to.be.at.most(budget);
      }
    }
  });

  it('a share on the server of the control database has a third of it for that, from three connections to the setting', () => {
    const share = (budget: number, services: number) =>
      shareOf({ budget, services, hasControl: true, maxControl });

    expect(share(80, 1)).to.deep.equal({ control: 9, tenants: 63 });
    expect(share(80, 4)).to.deep.equal({ control: 6, tenants: 12 });
    expect(share(20, 2)).to.deep.equal({ control: 3, tenants: 4 });
    expect(share(20, 4)).to.deep.equal({ control: 3, tenants: 1 });
  });

  it('a share on another server is all for tenants, and never below two', () => {
    const share = (budget: number, services: number) =>
      shareOf({ budget, services, hasControl: false, maxControl });

    expect(share(80, 4)).to.deep.equal({ control: 0, tenants: 18 });
    expect(share(8, 2)).to.deep.equal({ control: 0, tenants: 2 });
  });

  it('the minimum has the connection of the beat and that of the feed, which a process without confirmed beats keeps', () => {
    expect(minimumShare(true)).to.deep.equal({ control: 3, tenants: 1 });
    expect(minimumShare(false)).to.deep.equal({ control: 0, tenants: 2 });
    expect(lostShare(true)).to.deep.equal({ control: 2, tenants: 0 });
    expect(lostShare(false)).to.deep.equal({ control: 0, tenants: 0 });
  });

  it('a command works on one tenant at a time, and on a further one for each four connections of the reserve', () => {
    expect(taskLimit(20, 4)).to.equal(1);
    expect(taskLimit(80, 4)).to.equal(2);
    expect(taskLimit(200, 4)).to.equal(4);
    expect(taskLimit(200, 20)).to.equal(5);
  });
});
