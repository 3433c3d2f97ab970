import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { withConnection } from '../src/postgres/connection.ts';
import { type RunningScript, startScript } from '../test/support/command-line.ts';
import { openBenchInstallation } from './bench-installation.ts';
import { type BenchTenant, type Fleet, makeFleet, together } from './fleet-tenants.ts';

/**
 * An upgrade as it happens: a service of this build and one of the next, a load that asks for every tenant all the time
 * (the next build first, and when it says `migration_pending`, this one), and a run over the fleet in which one tenant is
 * made to fail. It ends with 1 unless all others are at head and had no other answer than 200 or, between the builds,
 * `migration_pending`.
 */
const { values } = parseArgs({
  options: { tenants: { type: 'string', default: '200' }, clients: { type: 'string', default: '8' } },
});
const [tenants, clients] = [values.tenants, values.clients].map(Number) as [number, number];
const path = '/api/v1/EntityStatus';

const opened = await openBenchInstallation(['max_connections=300', 'shared_buffers=256MB']);
let fleet: Fleet | undefined;
const services: RunningScript[] = [];
try {
  fleet = await makeFleet(opened, tenants, true);
  const old = await serve('src/main.ts');
  const recent = await serve(fleet.next.file('src/main.ts'));
  await upgrade(fleet, old, recent);
} finally {
  for (const service of services) {
    service.process.kill('SIGKILL');
    await service.ended;
  }
  await fleet?.next.remove();
  await opened.close();
}

interface Seen {
  slug: string;
  /** How often it was asked for, and what else came than it should. */
  requests: number;
  faults: string[];
  /** Served by the next build. */
  arrived: boolean;
  /** Longest time from an answer of either build to the next, in ms. */
  gap: number;
  servedAt: number;
}

async function upgrade({ tenants: all, next, command, send }: Fleet, old: string, recent: string): Promise<void> {
  const broken = all[Math.floor(all.length / 2)] as BenchTenant;
  await send(broken, ['create table labels (in_the_way text)']);
  const tokens = new Map<string, string>();
  await together(all, 2, async tenant => tokens.set(tenant.slug, await login(old, tenant)));

  const seen = new Map<string, Seen>();
  for (const { slug } of all)
    seen.set(slug, { slug, requests: 0, faults: [], arrived: false, gap: 0, servedAt: performance.now() });
  let running = true;
  const load = Array.from({ length: clients }, async (_, client) => {
    for (let turn = client; running; turn += clients) {
      const { slug } = all[turn % all.length] as BenchTenant;
      await ask(seen.get(slug) as Seen, tokens.get(slug) ?? '', old, recent);
    }
  });
  await sleep(2_000);
  const startedAt = performance.now();
  const { code, stdout } = await command('next', ['migrate', '--all', '--json']).ended;
  const seconds = (performance.now() - startedAt) / 1_000;
  await sleep(2_000);
  running = false;
  await Promise.all(load);

  const others = [...seen.values()].filter(({ slug }) => slug !== broken.slug);
  const faults = others.flatMap(each => each.faults.map(fault => `${each.slug}: ${fault}`));
  const failed = stdout.split('\n').filter(line => line.includes('"state":"failed"'));
  const [books] = await withConnection(opened.controlUrl, async client => {
    const text = 'select count(*)::int as head from tenants where schema_version = $1';
    return (await client.query<{ head: number }>(text, [next.head])).rows;
  });
  const token = tokens.get(broken.slug) ?? '';
  const answers = [await get(recent, token), await get(old, token)];
  const requests = others.reduce((sum, each) => sum + each.requests, 0);
  const gaps = others.map(({ gap }) => gap).sort((a, b) => a - b);
  const gap = (share: number) => gaps[Math.floor((gaps.length - 1) * share)]?.toFixed(0);
  console.log(`run of ${all.length} under load: exit ${code}, ${seconds.toFixed(1)} s, ${books?.head} at head`);
  console.log(`failed: ${failed.join(' ')}`);
  console.log(`its tenant: next build ${answers[0]}, this build ${answers[1]}`);
  console.log(
    `the others: ${requests} requests, ${faults.length} errors, ${others.filter(each => each.arrived).length} served by the next build`,
  );
  console.log(
    `longest time without an answer of either build, ms: median ${gap(0.5)}, 95 % ${gap(0.95)}, most ${gap(1)}`,
  );
  for (const fault of faults.slice(0, 10)) console.log(fault);
  const right = code === 1 && failed.length === 1 && books?.head === all.length - 1 && faults.length === 0;
  if (!right || answers[0] !== '503 migration_pending' || others.some(each => !each.arrived)) process.exitCode = 1;
}

/** The next build, or else the one before; that neither has it is only right until the next build has. */
async function ask(seen: Seen, token: string, old: string, recent: string): Promise<void> {
  seen.requests++;
  const first = await get(recent, token);
  if (first === '200') seen.arrived = true;
  else if (first !== '503 migration_pending' || seen.arrived) seen.faults.push(`next build ${first}`);
  const second = first === '200' ? first : await get(old, token);
  if (second !== '200' && second !== '503 migration_pending') seen.faults.push(`this build ${second}`);
  if (second !== '200') return;
  seen.gap = Math.max(seen.gap, performance.now() - seen.servedAt);
  seen.servedAt = performance.now();
}

async function get(url: string, token: string): Promise<string> {
  const answer = await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${token}` } });
  const text = await answer.text();
  return answer.status === 200 ? '200' : `${answer.status} ${JSON.parse(text).code}`;
}

async function login(url: string, { guid, admin }: BenchTenant): Promise<string> {
  const headers = { 'content-type': 'application/json', 'x-tenant': guid };
  const answer = await fetch(`${url}/api/v1/auth/login`, { method: 'POST', headers, body: JSON.stringify(admin) });
  if (answer.status !== 200) throw new Error(`login answered ${answer.status}`);
  return ((await answer.json()) as { accessToken: string }).accessToken;
}

/** A service of either build that says only what is wrong. @returns its address, when it answers */
async function serve(script: string): Promise<string> {
  const port = await freePort();
  const service = startScript(script, [], {
    DATABASE_URL: opened.controlUrl,
    MASTER_KEY: opened.masterKey,
    PORT: String(port),
    MANAGEMENT_PORT: '0',
    PUBLIC_URL: 'http://bench.test', // tokens of one are good at the other
    LOG_LEVEL: 'error',
    RATE_LIMIT_GLOBAL: '1000000/60s',
    RATE_LIMIT_LOGIN: '1000000/15m',
  });
  services.push(service);
  const url = `http://127.0.0.1:${port}`;
  for (let attempt = 0; attempt < 200; attempt++) {
    if (
      await fetch(url)
        .then(answer => answer.text())
        .catch(() => undefined)
    )
      return url;
    await sleep(100);
  }
  throw new Error(`the service does not answer: ${service.output.stdout}${service.output.stderr}`);
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise(resolve => server.close(resolve));
  return port;
}
