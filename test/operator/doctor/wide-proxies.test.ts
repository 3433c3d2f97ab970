import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { proxyWarnings, wideNetworks } from '../../../src/lib/config/proxy-warnings.ts';
import { runScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { useWorld } from '../../support/world.ts';

interface Finding {
  check: string;
  severity: string;
  problem: string;
  remedy: string;
}

describe('a trusted network wider than the proxies', () => {
  const world = useWorld();

  async function findWide(): Promise<Finding[]> {
    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json'],
      world.environment,
    );
    return JSON.parse(stdout).findings.filter(({ check }: Finding) => check === 'wide_proxies');
  }

  it('a network wider than /24 or /64 is wide without TRUSTED_HOPS, in any spelling', () => {
    const wide = (TRUSTED_PROXIES: string, more: Record<string, string> = {}) =>
      wideNetworks(readConfig({ TRUSTED_PROXIES, ...more }));

    expect(wide('unix,127.0.0.1,::1,192.0.2.0/24,2001:db8::/64,::ffff:10.0.0.0/120')).to.deep.equal(
      [],
    );
    expect(wide('127.0.0.1,10.0.0.0/8,192.0.2.0/23,::/0,2001:db8::/63,0.0.0.0/0')).to.deep.equal([
      '10.0.0.0/8',
      '192.0.2.0/23',
      '::/0',
      '2001:db8::/63',
      '0.0.0.0/0',
    ]);
    expect(wide('::ffff:10.0.0.0/104')).to.deep.equal(['10.0.0.0/8']);
    expect(wide('10.0.0.0/8,::/0', { TRUSTED_HOPS: '1' })).to.deep.equal([]);
  });

  it('TRUSTED_HEADER without TRUSTED_PROXIES, which is ignored, is a warning', () => {
    const warnings = (settings: Record<string, string>) => proxyWarnings(readConfig(settings));

    expect(warnings({ TRUSTED_HEADER: 'Forwarded' })).to.deep.equal([
      'TRUSTED_HEADER has no effect without TRUSTED_PROXIES, which names the peers whose header is read.',
    ]);
    expect(warnings({ TRUSTED_HEADER: 'Forwarded', TRUSTED_PROXIES: 'unix' })).to.deep.equal([]);
    expect(warnings({ TRUSTED_HEADER: 'X-Forwarded-For' })).to.deep.equal([]);
  });

  it('a start with such a network and without TRUSTED_HOPS logs one warning, which names every such network', async () => {
    const startWith = async (settings: Record<string, string>): Promise<string[]> => {
      const { code, stdout } = await runScript('src/main.ts', [], {
        ...world.environment,
        ...settings,
        // an address that no machine has, so that the start ends by itself
        HOST: '203.0.113.1',
      });
      expect(code).to.equal(1);
      return stdout.split('\n').filter(line => line.includes('TRUSTED_PROXIES'));
    };

    const [warning, ...others] = await startWith({ TRUSTED_PROXIES: '10.0.0.0/8,127.0.0.1,::/0' });
    expect(others).to.deep.equal([]);
    expect(JSON.parse(warning ?? '')).to.include({
      level: 40,
      event: 'setting',
      msg:
        'TRUSTED_PROXIES has 10.0.0.0/8 and ::/0, and TRUSTED_HOPS is not set: a client with an ' +
        'address in there may choose the address that it counts as. Set TRUSTED_HOPS to the ' +
        'number of proxies on every way to the service.',
    });

    expect(await startWith({ TRUSTED_PROXIES: '10.0.0.0/8', TRUSTED_HOPS: '1' })).to.deep.equal([]);
    expect(await startWith({ TRUSTED_PROXIES: '192.0.2.0/24' })).to.deep.equal([]);
  });

  it('doctor names such a network of any running process in one warning, until the process is gone', async () => {
    await world.startAnotherServer({ TRUSTED_PROXIES: '10.0.0.0/8', TRUSTED_HOPS: '1' });
    expect(await findWide()).to.deep.equal([]);

    const started = await Promise.all(
      ['fd00::/8,10.0.0.0/8', '127.0.0.1,10.0.0.0/8'].map(TRUSTED_PROXIES =>
        world.startAnotherServer({ TRUSTED_PROXIES }),
      ),
    );
    const [finding, ...others] = await findWide();
    expect(others).to.deep.equal([]);
    expect(finding?.severity).to.equal('warning');
    expect(finding?.problem).to.equal(
      'TRUSTED_PROXIES has 10.0.0.0/8 and fd00::/8, and TRUSTED_HOPS is not set: a client with ' +
        'an address in there may choose the address that it counts as',
    );
    expect(finding?.remedy).to.equal(
      'Set TRUSTED_HOPS to the number of proxies on every way to the service, and restart it.',
    );

    for (const { service } of started) await service.stop();
    await eventually(async () => (await findWide()).length === 0);
  });
});
