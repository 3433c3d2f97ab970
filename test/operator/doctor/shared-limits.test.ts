import { hostname } from 'node:os';
import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { useWorld } from '../../support/world.ts';

interface Finding {
  check: string;
  severity: string;
  problem: string;
  remedy: string;
}

describe('doctor and the limits of requests', () => {
  const world = useWorld();

  const findLimits = async (): Promise<Finding[]> => {
    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json'],
      world.environment,
    );
    return JSON.parse(stdout).findings.filter(
      ({ check }: Finding) => check === 'limits_not_shared',
    );
  };

  it('a single process without Redis is no finding', async () => {
    expect(await findLimits()).to.deep.equal([]);
  });

  it('of several processes, doctor names those that count by themselves, as a warning with both ways out', async () => {
    const own = `${hostname()} pid ${process.pid}`;
    const { service } = await world.startAnotherServer({ REDIS_URL: 'redis://127.0.0.1:1' });
    const [one] = await eventually(async () => {
      const found = await findLimits();
      return found.length > 0 && found;
    });
    expect(one?.severity).to.equal('warning');
    expect(one?.problem).to.equal(
      `of 2 processes, 1 without REDIS_URL count the limits of requests by themselves: ${own}`,
    );
    expect(one?.remedy).to.equal(
      'Set REDIS_URL to the same Redis in all processes, and restart them. Or run one process.',
    );

    await service.stop();
    const other = await world.startAnotherServer();
    const names = `: ${own}, ${own}`;
    await eventually(async () => (await findLimits())[0]?.problem.endsWith(names));
    await other.service.stop();
  });
});
