import { setTimeout as wait } from 'node:timers/promises';
import { expect } from 'chai';
import { type ApiResponse, Client } from '../support/client.ts';
import { type RunningScript, startScript } from '../support/command-line.ts';
import { createDedicatedServer, type DedicatedServer } from '../support/dedicated-server.ts';
import { eventually } from '../support/eventually.ts';

describe('drill: commits of the control database that hang', () => {
  let server: DedicatedServer;
  let service: RunningScript | undefined;
  let url: string;

  /**
   * A standby that does not answer: a commit is made, and returns when the standby is given up.
   */
  const setStandby = async (name: string): Promise<void> => {
    await server.sql(`alter system set synchronous_standby_names = '${name}'`);
    await server.sql('select pg_reload_conf()');
  };

  before(async () => {
    server = await createDedicatedServer(['synchronous_commit=on']);
    const ports = { PORT: '0', MANAGEMENT_PORT: '0', SHUTDOWN_DELAY: '0s' };
    service = startScript('src/main.ts', [], { ...server.environment, ...ports });
    const { output, process: child } = service;
    await eventually(
      () => output.stdout.includes('"event":"listening"') || child.exitCode !== null,
      120_000,
    );
    expect(child.exitCode, output.stderr + output.stdout).to.equal(null);
    url = `http://127.0.0.1:${/"event":"listening","port":(\d+)/.exec(output.stdout)?.[1]}`;
  });
  after(async () => {
    service?.process.kill('SIGTERM');
    await service?.ended;
    await server.close();
  });

  it('a client that repeats a refresh when it is told to keeps its session, and counts as no thief', async () => {
    const { tenant, logins } = await server.provision('acme');
    const anonymous = new Client(url);
    const headers = { 'X-Tenant': tenant.guid };
    const { body: tokens } = await anonymous.post('/api/v1/auth/login', logins[0], headers);
    const refresh = (refreshToken: string): Promise<ApiResponse> =>
      anonymous.post('/api/v1/auth/refresh', { refreshToken }, headers);

    await setStandby('away');
    let response = await refresh(tokens.refreshToken);
    expect(response.status).to.equal(503);
    for (let count = 0; response.status === 503 && count < 20; count++) {
      const seconds = Number(response.headers.get('retry-after'));
      expect(seconds).to.be.at.least(1);
      await wait(seconds * 1_000);
      if (count === 2) await setStandby('');
      response = await refresh(tokens.refreshToken);
    }

    expect(response.status).to.equal(200);
    expect((await refresh(response.body.refreshToken)).status).to.equal(200);
    const sessions = await server.control('select revoked_reason as reason from sessions');
    expect(sessions).to.deep.equal([{ reason: null }]);
  });
});
