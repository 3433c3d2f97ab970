import { expect } from 'chai';
import { backupSettings } from '../support/backup-settings.ts';
import { runScript } from '../support/command-line.ts';
import { startS3Server } from '../support/s3-server.ts';
import { use } from '../support/use.ts';
import { sql, useWorld } from '../support/world.ts';

describe('a silent store', () => {
  const s3 = use(() => startS3Server('backups'));
  const world = useWorld();
  let environment: Record<string, string>;

  before(async () => {
    environment = { ...world.environment, ...(await backupSettings('')), ...s3.environment };
  });

  for (const [place, pattern] of Object.entries({
    'from the start': /./,
    'at its first archive': /\/tenants\//,
  })) {
    it(`a store that falls silent ${place} ends a run of the command line within 60 s, and the run names the call`, async () => {
      for (const tenant of [world.acme, world.globex]) {
        await sql(
          tenant,
          `insert into currencies (code, name) select 'C' || count(*), 'Currency' from currencies`,
        );
      }
      await runScript('scripts/tenant.ts', ['backup', 'init'], environment);

      let silentAt = Number.POSITIVE_INFINITY;
      s3.faultOf = request => {
        if (pattern.test(request)) silentAt = Math.min(silentAt, performance.now());
        return silentAt < Number.POSITIVE_INFINITY ? { kind: 'silent' } : undefined;
      };

      const { code, stdout, stderr } = await runScript(
        'scripts/tenant.ts',
        ['backup', 'run', '--all'],
        environment,
      );

      const seconds = (performance.now() - silentAt) / 1_000;
      console.log(
        `      ${seconds.toFixed(1)} s: ${`${stdout}${stderr}`.trim().replaceAll('\n', '\n      ')}`,
      );

      expect(code).to.equal(1);
      expect(stdout + stderr).to.match(/was silent for (18|19|2\d) s: (check|write) /);
      expect(seconds).to.be.below(60);

      s3.faultOf = () => undefined;
      const next = await runScript('scripts/tenant.ts', ['backup', 'run', '--all'], environment);
      expect(next.code, next.stderr).to.equal(0);
    });
  }
});
