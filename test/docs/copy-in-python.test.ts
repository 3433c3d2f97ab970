import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { accessTokenLifetimeSeconds } from '../../src/control/token-lifetime.ts';
import type { Client } from '../support/client.ts';
import { type RunningScript, root, startProgram } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { sql, useLogin, useWorld } from '../support/world.ts';

describe('the recipe of a copy in Python', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let folder: string;
  let program: RunningScript | undefined;
  /** Responses to the program, as status and path. */
  const responses: string[] = [];
  let isLimiting = false;

  const proxy = createServer(async (request, response) => {
    const { method = 'GET', url = '' } = request;
    const isLimited = isLimiting && url.startsWith('/api/v1/Changes');
    if (isLimited) {
      response.writeHead(429, { 'Retry-After': '1' });
    } else {
      const chunks = await request.toArray();
      const sent = new Headers(request.headers as Record<string, string>);
      for (const name of ['host', 'connection', 'content-length']) sent.delete(name);
      const body = chunks.length > 0 ? Buffer.concat(chunks) : null;
      const received = await fetch(`${world.url}${url}`, { method, headers: sent, body });
      const headers = Object.fromEntries(received.headers);
      response.writeHead(received.status, { ...headers, connection: 'close' });
      response.write(new Uint8Array(await received.arrayBuffer()));
    }

    responses.push(`${response.statusCode} ${url.split('?')[0]}`);
    response.end();
  });

  before(async function () {
    if (!hasPython()) {
      console.log('  the recipe of a copy in Python: skipped, because python3 is not installed');
      return this.skip();
    }
    folder = await mkdtemp(join(tmpdir(), 'backoffice-copy-'));
    await writeFile(join(folder, 'copy.py'), await readRecipe());
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
  });

  after(async () => {
    await stop();
    proxy.close();
    if (folder !== undefined) await rm(folder, { recursive: true });
  });

  function start(): void {
    const { port } = proxy.address() as AddressInfo;
    program = startProgram('sh', ['-c', 'cd "$0" && exec python3 copy.py', folder], {
      SERVICE: `http://127.0.0.1:${port}`,
      TENANT: world.acme.guid,
      EMAIL: world.acme.admin.email,
      PASSWORD: world.acme.admin.password,
    });
  }

  async function stop(): Promise<void> {
    program?.process.kill('SIGKILL');
    await program?.ended;
    program = undefined;
  }

  /** The codes in the copy. */
  function copied(): string[] {
    using database = new DatabaseSync(join(folder, 'copy.db'), { readOnly: true });
    return database
      .prepare('select record from copy')
      .all()
      .map(({ record }) => JSON.parse(String(record)).Code)
      .sort();
  }

  /** Waits until the copy has exactly these codes. */
  const expectCopied = (...codes: string[]): Promise<unknown> =>
    eventually(() => {
      expect(program?.output.stderr).to.equal('');
      expect(copied()).to.deep.equal(codes);
      return true;
    });

  const create = (client: Client, Code: string) =>
    client.post('/api/v1/Currency', { Code, Name: Code, Symbol: Code });

  const timesReceived = (line: string): number => responses.filter(each => each === line).length;

  it('has every record of its tenant, and no other one, after a restart, a limit, the end of a token and an expired cursor', async () => {
    await create(globex, 'GLB');
    await create(acme, 'AAA');
    const { body: deleted } = await create(acme, 'BBB');
    start();
    await expectCopied('AAA', 'BBB');

    await create(acme, 'CCC');
    await acme.delete(`/api/v1/Currency/${deleted.Id}`);
    await expectCopied('AAA', 'CCC');
    expect(timesReceived('200 /api/v1/Currency')).to.equal(1);

    await stop();
    await create(acme, 'DDD');
    start();
    await expectCopied('AAA', 'CCC', 'DDD');
    expect(timesReceived('200 /api/v1/Currency'), 'after a restart').to.equal(1);

    isLimiting = true;
    await eventually(() => timesReceived('429 /api/v1/Changes') > 0);
    await create(acme, 'EEE');
    isLimiting = false;
    await expectCopied('AAA', 'CCC', 'DDD', 'EEE');

    const logins = timesReceived('200 /api/v1/auth/login');
    world.clock.offsetSeconds = accessTokenLifetimeSeconds + 60;
    await create(await world.login(world.acme), 'FFF');
    await expectCopied('AAA', 'CCC', 'DDD', 'EEE', 'FFF');
    // The record may have arrived by a request that began before the token ended.
    await eventually(() => timesReceived('200 /api/v1/auth/login') > logins);
    expect(timesReceived('200 /api/v1/auth/login')).to.equal(logins + 1);

    await sql(
      world.acme,
      'update tenant_identity set feed_since = feed_since + 1, feed_era = feed_era + 1',
    );
    await eventually(() => timesReceived('410 /api/v1/Changes') > 0);
    await create(await world.login(world.acme), 'GGG');
    await expectCopied('AAA', 'CCC', 'DDD', 'EEE', 'FFF', 'GGG');
    expect(timesReceived('200 /api/v1/Currency'), 'after an expired cursor').to.equal(2);
  });
});

function hasPython(): boolean {
  try {
    return execFileSync('python3', ['--version'], { encoding: 'utf8' }) !== '';
  } catch {
    return false;
  }
}

/** Returns the recipe of the guide. */
async function readRecipe(): Promise<string> {
  const page = await readFile(join(root, 'docs/guide/events.md'), 'utf8');
  const [, code = ''] = /## Keep a copy\n.*?```python\n(.*?)```/s.exec(page) ?? [];
  return code;
}
