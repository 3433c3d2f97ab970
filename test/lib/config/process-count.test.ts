import { expect } from 'chai';
import { maxProcesses, processCount } from '../../../src/lib/config/process-count.ts';

const redis = 'redis://127.0.0.1';

describe('PROCESSES', () => {
  it('a connection budget has room for a quarter of it in processes, less one', () => {
    const most = [8, 12, 20, 32, 80].map(maxProcesses);

    expect(most).to.deep.equal([1, 2, 4, 7, 19]);
  });

  it('auto is one process per core with Redis, and says nothing', () => {
    const settings = { PROCESSES: 'auto', CONNECTION_BUDGET: 80, REDIS_URL: redis } as const;

    expect(processCount(settings, 8)).to.deep.equal({ count: 8, note: undefined });
  });

  it('auto is at most what the budget has room for while a restart has one process more, and says so', () => {
    const settings = { PROCESSES: 'auto', CONNECTION_BUDGET: 20, REDIS_URL: redis } as const;

    const { count, note } = processCount(settings, 8);

    expect(count).to.equal(3);
    expect(note).to.equal('PROCESSES=auto is 3 on 8 cores: CONNECTION_BUDGET has room for no more');
  });

  it('auto is one process without Redis, and says why if there are more cores', () => {
    const settings = { PROCESSES: 'auto', CONNECTION_BUDGET: 80 } as const;

    expect(processCount(settings, 1)).to.deep.equal({ count: 1, note: undefined });
    expect(processCount(settings, 8).count).to.equal(1);
    expect(processCount(settings, 8).note).to.match(
      /^PROCESSES=auto is one process, because REDIS_URL is not set: /,
    );
  });
});
