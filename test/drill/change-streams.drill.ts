import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { describeInBrowser } from '../docs/browser.ts';
import { freePort } from '../support/free-port.ts';

/** The timeouts of HAProxy are above 15 s, after which a quiet stream sends a comment. */
const configuration = (port: number, service: number): string => `
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend api
  bind 127.0.0.1:${port}
  default_backend service
backend service
  server s 127.0.0.1:${service}
`;
/**
 * PostgreSQL reports a commit up to 10 s later, which is read then, and a connection is kept
 * for 30 s.
 */
const quietMs = 60_000;

describeInBrowser('drill: a stream of changes in a browser, through HAProxy', (world, open) => {
  let folder: string;
  let haproxy: ChildProcess | undefined;

  after(async () => {
    haproxy?.kill('SIGKILL');
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  async function connectionsOf(database: string): Promise<number> {
    // Sizes are read from one tenant after the other, whether they have streams or not.
    const text = `select count(*)::int as count from pg_stat_activity
                   where datname = ? and query not like '%pg_database_size%'`;
    return (
      (await world().control.em.fork().execute<{ count: number }[]>(text, [database]))[0]?.count ??
      0
    );
  }

  it('events arrive one by one, also after a quiet time above the timeouts, in which no connection to the tenant is held', async function () {
    if (spawnSync('which', ['haproxy']).status !== 0) this.skip();
    this.timeout(300_000);

    folder = await mkdtemp(join(tmpdir(), 'backoffice-drill-'));
    const port = await freePort();
    await writeFile(join(folder, 'haproxy.cfg'), configuration(port, world().service.port));
    haproxy = spawn('haproxy', ['-db', '-f', join(folder, 'haproxy.cfg')], { stdio: 'ignore' });

    const admin = await world().login(world().acme);
    const { page } = await open('/docs');
    await page.goto(`http://127.0.0.1:${port}/docs`);
    const begun = page.evaluate(begin, admin.tokens?.accessToken ?? '');
    expect(await begun).to.equal('text/event-stream; charset=utf-8');

    const names: string[] = [];
    for (const Name of ['first', 'second', 'after a pause']) {
      if (Name === 'after a pause') {
        await new Promise(resolve => setTimeout(resolve, quietMs));
        expect(await connectionsOf(world().acme.database), 'connections of the tenant').to.equal(0);
      }

      const sentAt = performance.now();
      await admin.post('/api/v1/OrderStatuses', { Name });
      names.push(await page.evaluate(next));
      console.log(
        `    ${Name}: ${Math.round(performance.now() - sentAt)} ms from the request to the page`,
      );
    }

    expect(names).to.deep.equal(['first', 'second', 'after a pause']);
  });
});

/** The state that the page keeps between two calls. */
interface Page {
  reader: ReadableStreamDefaultReader<string>;
  text: string;
}

/** Runs in the browser. */
async function begin(token: string): Promise<string | null> {
  const headers = { Authorization: `Bearer ${token}`, Accept: 'text/event-stream' };
  const response = await fetch('/api/v1/Changes/stream?include=record', { headers });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  Object.assign(globalThis, { following: { reader, text: '' } });
  return response.headers.get('content-type');
}

/** Runs in the browser. */
async function next(): Promise<string> {
  const { following } = globalThis as unknown as { following: Page };
  for (;;) {
    const found = /data: (.*)\n\n/.exec(following.text);
    if (found?.[1]) {
      following.text = following.text.slice(found.index + found[0].length);
      return JSON.parse(found[1]).Record.Name;
    }
    following.text += (await following.reader.read()).value ?? '';
  }
}
