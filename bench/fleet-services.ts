import { setTimeout as sleep } from 'node:timers/promises';
import { type RunningScript, startScript } from '../test/support/command-line.ts';
import { freePort } from '../test/support/free-port.ts';
import type { BenchInstallation } from './bench-installation.ts';
import type { FleetTenant } from './fleet-tenants.ts';

export interface RunningService {
  readonly url: string;
  /** Sends SIGKILL and waits for the end. */
  kill(): Promise<void>;
}

const path = '/api/v1/EntityStatus';
const startAttempts = 200; // one every 100 ms

/** Starts the service that `script` runs, with a log of errors only, and waits until it responds. */
export async function startService(opened: BenchInstallation, script: string): Promise<RunningService> {
  const port = await freePort();
  const service = startScript(script, [], {
    DATABASE_URL: opened.controlUrl,
    MASTER_KEY: opened.masterKey,
    PORT: String(port),
    MANAGEMENT_PORT: '0',
    PUBLIC_URL: 'http://bench.test',
    LOG_LEVEL: 'error',
    RATE_LIMIT_GLOBAL: '1000000/60s',
    RATE_LIMIT_LOGIN: '1000000/15m',
  });
  const url = `http://127.0.0.1:${port}`;
  try {
    await waitUntilResponding(url, service);
  } catch (error) {
    await kill(service);
    throw error;
  }
  return { url, kill: () => kill(service) };
}

async function waitUntilResponding(url: string, { output }: RunningScript): Promise<void> {
  for (let attempt = 0; attempt < startAttempts; attempt++) {
    const responding = await fetch(url).then(
      response => response.text().then(() => true),
      () => false,
    );
    if (responding) return;
    await sleep(100);
  }
  throw new Error(`the service does not respond: ${output.stdout}${output.stderr}`);
}

async function kill(service: RunningScript): Promise<void> {
  service.process.kill('SIGKILL');
  await service.ended;
}

/**
 * Reads a list with a token.
 * @returns `200`, or the status and the problem code, for example `503 migration_pending`
 */
export async function readList({ url }: RunningService, token: string): Promise<string> {
  const response = await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${token}` } });
  const text = await response.text();
  return response.status === 200 ? '200' : `${response.status} ${JSON.parse(text).code}`;
}

/** Logs in as the administrator of a tenant. @returns the access token */
export async function login({ url }: RunningService, { guid, admin }: FleetTenant): Promise<string> {
  const headers = { 'content-type': 'application/json', 'x-tenant': guid };
  const response = await fetch(`${url}/api/v1/auth/login`, { method: 'POST', headers, body: JSON.stringify(admin) });
  if (response.status !== 200) throw new Error(`login returned ${response.status}`);
  return ((await response.json()) as { accessToken: string }).accessToken;
}
