import { expect } from 'chai';
import { startScript } from './support/command-line.ts';
import { redisInstalled, startRedis, type TestRedis } from './support/redis.ts';
import { startSilentServer } from './support/silent-server.ts';
import { use } from './support/use.ts';
import { useWorld } from './support/world.ts';

const maxMs = 30_000; // on a busy machine; alone it takes 2 s

describe('a start that fails', () => {
  const world = useWorld();
  const silent = use(startSilentServer);

  /**
   * Starts the service in a process of its own.
   * @returns the one line that it prints at its end
   */
  async function refusal(settings: Record<string, string>): Promise<string> {
    const ports = { PORT: '0', MANAGEMENT_PORT: '0' };
    const { process: child, ended } = startScript('src/main.ts', [], {
      ...world.environment,
      ...ports,
      ...settings,
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), maxMs);
    const { code, stderr } = await ended;
    clearTimeout(timer);

    expect(code, stderr).to.equal(1);
    expect(stderr.trimEnd().split('\n')).to.have.length(1);
    expect(stderr).not.to.match(/secret-word|Unexpected/);
    return stderr;
  }

  it('a refused setting ends the process with its name, whichever setting it is and whatever is open by then', async () => {
    const redisUrl = 'redis://:secret-word%zz@127.0.0.1:6379';

    expect(await refusal({ REDIS_URL: redisUrl })).to.match(
      /^Correct the configuration: REDIS_URL has a % /,
    );
    expect(await refusal({ REDIS_URL: 'redis://127.0.0.1/cache' })).to.match(
      /REDIS_URL must have the number/,
    );
    expect(await refusal({ SMTP_URL: 'smtp://u:secret-word#@mail.internal' })).to.match(
      /SMTP_URL has a # in it/,
    );

    // After databases, feed and beat are open.
    expect(await refusal({ PORT: String(silent.port) })).to.match(
      /^port \d+ on 127\.0\.0\.1 is in use.*set PORT/,
    );
  });

  if (redisInstalled) {
    it('a start with a REDIS_URL whose database Redis does not have ends the process with the reason', async () => {
      const redis: TestRedis = await startRedis();
      try {
        expect(await refusal({ REDIS_URL: `${redis.url}/99` })).to.match(
          /^REDIS_URL names database 99, which Redis refuses \(.*\): leave it out, for database 0/m,
        );
      } finally {
        await redis.close();
      }
    });
  }
});
