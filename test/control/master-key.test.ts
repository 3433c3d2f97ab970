import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { createControlPool } from '../../src/control/control-pool.ts';
import type { Installation } from '../../src/control/installation.ts';
import { requireMasterKey } from '../../src/control/present-key.ts';
import { owners, SecretBox } from '../../src/control/secret-box.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { lockKey, lockSpaces } from '../../src/lib/postgres/advisory-locks.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { sqlState } from '../../src/lib/postgres/database-error.ts';
import { rotateKey } from '../../src/operator/credentials/keys.ts';
import { resealSecrets } from '../../src/operator/credentials/reseal.ts';
import type { RunningServer } from '../../src/service/server.ts';
import { type ApiResponse, Client } from '../support/client.ts';
import { startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { readLockWaiters } from '../support/lock-waiters.ts';
import { runCommand } from '../support/run-command.ts';
import { startServerBeside } from '../support/server-beside.ts';
import { controlTemplate, postgresUrl } from '../support/test-server.ts';
import { use } from '../support/use.ts';
import { controlSql, createWorld, type TestTenant, type World } from '../support/world.ts';

const webhooks = '/api/v1/Webhooks';
const webhook = { Url: 'https://receiver.example.com/hook' };
const newKey = (): string => randomBytes(32).toString('base64');
const boxOf = (masterKey: string, previous?: string): SecretBox =>
  new SecretBox(
    Buffer.from(masterKey, 'base64'),
    previous === undefined ? undefined : Buffer.from(previous, 'base64'),
  );

/** The settings of a process. */
interface Keys {
  readonly MASTER_KEY: string;
  readonly MASTER_KEY_PREVIOUS?: string;
}

describe('the master key of an installation', () => {
  const world = use(createWorld);
  let former: string;
  let next: string;

  before(() => {
    former = world.environment.MASTER_KEY ?? '';
  });
  beforeEach(() => {
    next = newKey();
  });
  /** Lets the former key be the present one again, and removes what a test has made. */
  afterEach(async () => {
    const [row] = await presentKeys(world);
    const present = boxOf(next).present.fingerprint === row?.fingerprint ? next : former;
    await resealSecrets({ pool: world.installation.pool, secrets: boxOf(former, present) });
    await controlSql(world, 'delete from webhook_tenants');
    await eventually(() => isReady(world.service));
  });

  const change = () =>
    resealSecrets({ pool: world.installation.pool, secrets: boxOf(next, former) });

  describe('at the start of a process', () => {
    it('service and commands refuse keys that are not the master key, and say which setting to change', async () => {
      const fingerprint = boxOf(former).present.fingerprint;
      const refusal = (lack: string, found: string) =>
        new RegExp(
          `^${lack} the master key of this control database: ` +
            `set MASTER_KEY to the key with the fingerprint (\\S+) \\(${found}\\)\\.\n$`,
        );
      const wrong: [keys: Keys, message: RegExp][] = [
        [{ MASTER_KEY: next }, refusal('MASTER_KEY is not', 'it has \\S+')],
        [
          { MASTER_KEY: next, MASTER_KEY_PREVIOUS: newKey() },
          refusal('Neither MASTER_KEY nor MASTER_KEY_PREVIOUS is', 'they have \\S+ and \\S+'),
        ],
      ];

      for (const [keys, message] of wrong) {
        const environment = { ...world.environment, ...keys };
        const results = [
          await runCommand('src/main.ts', [], environment),
          await runCommand('scripts/tenant.ts', ['list'], environment),
          await runCommand('scripts/tenant.ts', ['doctor', '--fix'], environment),
          await runCommand('scripts/control.ts', ['reseal', '--yes'], environment),
          await runCommand('scripts/control.ts', ['migrate'], environment),
        ];

        for (const { code, stdout, stderr } of results) {
          expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
          expect(stderr).to.match(message);
          expect(message.exec(stderr)?.[1]).to.equal(fingerprint);
        }
      }
    });

    it('a key whose fingerprint is right and that does not open the canary is refused', async () => {
      const [stored] = await controlSql<{ canary: Buffer }>(
        world,
        'select master_key_canary as canary from installation',
      );
      await controlSql(
        world,
        `update installation set master_key_canary = convert_to(key_fingerprint || 'changed', 'UTF8')`,
      );

      const { code, stderr } = await runCommand('scripts/tenant.ts', ['list'], world.environment);

      expect(code).to.equal(1);
      expect(stderr).to.match(
        /^The canary of the control database does not open under the key that has its fingerprint/,
      );
      await controlSql(world, 'update installation set master_key_canary = ?', [stored?.canary]);
    });

    it('of concurrent first uses of a control database with different keys, one makes its key the master key', async () => {
      const { url, drop } = await createControl();
      const pool = createControlPool(url, 4);
      const boxes = Array.from({ length: 4 }, () => boxOf(newKey()));

      const first = await Promise.allSettled(boxes.map(secrets => requireMasterKey(pool, secrets)));
      const second = await Promise.allSettled(
        boxes.map(secrets => requireMasterKey(pool, secrets)),
      );

      expect(first.map(({ status }) => status).sort()).to.deep.equal([
        'fulfilled',
        'rejected',
        'rejected',
        'rejected',
      ]);
      expect(second.map(({ status }) => status)).to.deep.equal(first.map(({ status }) => status));
      await pool.end();
      await drop();
    });
  });

  describe('a process with the former key alone', () => {
    it('a process with the former key alone is not ready from the next beat on, and readiness, log and metric say which setting to change', async () => {
      const loggedBefore = world.logs.length;
      await change();

      const response = await eventually(async () => {
        const ready = await fetch(`http://127.0.0.1:${world.service.managementPort}/health/ready`);
        return ready.status === 503 && ready;
      });

      const body = (await response.json()) as { reason: string; remedy: string };
      expect(body.reason).to.equal('master_key');
      expect(body.remedy).to.match(/^Set MASTER_KEY to the present master key\./);
      const lines = world.logs
        .slice(loggedBefore)
        .filter(line => line.includes('"master_key_unknown"'));
      expect(lines).to.have.length(1);
      expect(JSON.parse(lines[0] ?? '').msg).to.equal(
        'MASTER_KEY is not the master key of this control database: set MASTER_KEY to the key with the fingerprint ' +
          `${boxOf(next).present.fingerprint} (it has ${boxOf(former).present.fingerprint})`,
      );
      for (const key of [former, next]) expect(lines[0]).to.not.include(key);
      const metrics = await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`);
      expect(await metrics.text()).to.match(/^master_key_known 0$/m);
    });

    it('a process becomes ready again when its key is the present one again', async () => {
      await change();
      await eventually(() => isReady(world.service).then(ready => !ready));

      await resealSecrets({ pool: world.installation.pool, secrets: boxOf(former, next) });

      await eventually(() => isReady(world.service));
      for (const tenant of [world.acme, world.globex]) {
        expect((await world.login(tenant)).tokens?.accessToken).to.be.a('string');
      }
    });

    it('a process with the former key alone stores nothing sealed, before and after it knows that the key was changed', async () => {
      const client = await world.login(world.acme);

      await whileBeatsWait(world, async () => {
        await change();
        const { status, body } = await client.post(webhooks, webhook);
        expect(status, 'before the next beat').to.equal(503);
        expect(body.code, 'before the next beat').to.equal('unavailable');
      });

      await eventually(() => isReady(world.service).then(ready => !ready));
      const { status, body } = await client.post(webhooks, webhook);
      expect(status, 'after it').to.equal(503);
      expect(body.code, 'after it').to.equal('unavailable');

      const stale = boxOf(former);
      const rotated = await rotateKey(
        { ...world.installation, secrets: stale } as Installation,
        'acme',
      ).then(() => 'stored', sqlState);

      expect(rotated).to.equal('SB002');
      expect(await sealedUnder(world, stale.present.fingerprint)).to.deep.equal([]);
      expect(await controlSql(world, 'select from webhook_tenants')).to.deep.equal([]);
    });

    it('a process with the former key alone refuses a refresh with 503, and not with 401, which would log its client out', async () => {
      const other = await startProcess(world, { MASTER_KEY: next, MASTER_KEY_PREVIOUS: former });
      const client = await world.login(world.acme);
      const refresh = (url: string, tokens: unknown): Promise<ApiResponse> =>
        new Client(url).post('/api/v1/auth/refresh', tokens, { 'X-Tenant': world.acme.guid });
      await change();
      await eventually(() => other.secrets.present === other.secrets.masterKey);
      await eventually(() => isReady(world.service).then(ready => !ready));
      const { body: renewed } = await refresh(other.url, client.tokens);

      const refused = await refresh(world.url, renewed);

      expect(refused.status).to.equal(503);
      expect(refused.body.code).to.equal('unavailable');
      expect((await refresh(other.url, renewed)).status).to.equal(200);
      await other.stop();
    });
  });

  describe('a change', () => {
    it('a change of the master key by the steps of the handbook, under load, refuses no refresh, login or webhook, and leaves nothing that cannot be opened', async () => {
      const [both, reseal, alone] = await handbookSteps();
      expect(both).to.match(
        /^Set the new key as `MASTER_KEY`, and the former one as `MASTER_KEY_PREVIOUS`/,
      );
      expect(alone).to.match(/^After 30 days, remove `MASTER_KEY_PREVIOUS`/);

      const tenants = [
        world.acme,
        world.globex,
        await world.provision('initech'),
        await world.provision('umbrella'),
      ];

      const fleet = await Promise.all([
        startProcess(world, { MASTER_KEY: former }),
        startProcess(world, { MASTER_KEY: former }),
      ]);
      const load = startLoad(fleet, tenants);

      await load.round();
      await replaceEach(
        world,
        fleet,
        { MASTER_KEY: next, MASTER_KEY_PREVIOUS: former },
        load.round,
      );

      // each tenant gets a new sealed key meanwhile
      await controlSql(world, 'delete from webhook_tenants');
      for (const line of commandsOf(reseal)) {
        const { code, stderr } = await runCommand(
          'scripts/tenant.ts',
          [...line, ...(line.includes('--dry-run') ? [] : ['--yes'])],
          {
            ...world.environment,
            MASTER_KEY: next,
            MASTER_KEY_PREVIOUS: former,
          },
        );
        expect({ code, stderr }, line.join(' ')).to.deep.equal({ code: 0, stderr: '' });
      }

      // The 30 days, in which every client refreshes its token.
      await eventually(() => fleet.every(({ secrets }) => secrets.present === secrets.masterKey));
      await load.round();
      await replaceEach(world, fleet, { MASTER_KEY: next }, load.round);
      const { statuses: seen, unready } = await load.stop();

      expect(Object.keys(seen).sort(), JSON.stringify(seen)).to.deep.equal(['200', '201']);
      expect(seen['200']).to.be.above(40);
      expect(seen['201']).to.be.above(4);
      expect(unready).to.equal(0);
      expect(await sealedUnder(world, boxOf(former).present.fingerprint)).to.deep.equal([]);
      await openEverySecret(world, boxOf(next));
      for (const { stop } of fleet) await stop();
    });

    it('a change of the master key seals every sealed column again, and each of them refuses what another key has sealed', async () => {
      const client = await world.login(world.acme);
      expect((await client.post(webhooks, webhook)).status).to.equal(201);
      const url = world.installation.secrets.seal(
        'postgresql://localhost/',
        owners.serverUrl('far'),
      );
      await controlSql(
        world,
        `insert into servers (name, prefix, admin_url) values ('far', 'test', ?)`,
        [url],
      );
      const before = await sealedUnder(world, boxOf(former).present.fingerprint);

      await change();

      expect(before).to.include.members([
        'installation.master_key_canary',
        'servers.admin_url',
        'signing_keys.secret',
        'tenant_databases.role_password',
        'tenants.role_password',
        'webhook_tenants.sealed_key',
      ]);
      expect(await sealedUnder(world, boxOf(former).present.fingerprint)).to.deep.equal([]);
      expect(await sealedUnder(world, boxOf(next).present.fingerprint)).to.deep.equal(before);
      for (const column of before) {
        expect(await storeUnder(world, column, boxOf(former)), column).to.equal('SB002');
      }
      await controlSql(world, `delete from servers where name = 'far'`);
    });

    it('a process that does not know of the change yet stores a secret under the new key', async () => {
      const other = await startProcess(world, { MASTER_KEY: former, MASTER_KEY_PREVIOUS: next });
      const client = (await world.login(world.globex)).at(other.url);

      await whileBeatsWait(world, async () => {
        await change();
        expect(other.secrets.present, 'the process knows nothing').to.equal(
          other.secrets.masterKey,
        );
        expect((await client.post(webhooks, webhook)).status).to.equal(201);
      });

      expect(await sealedUnder(world, boxOf(former).present.fingerprint)).to.deep.equal([]);
      await openEverySecret(world, boxOf(next));
      await other.stop();
    });

    it('a command that ran meanwhile and does not know of the change stores nothing, and says that it can be run again', async () => {
      const keys = { MASTER_KEY: former, MASTER_KEY_PREVIOUS: next };
      const provision = () =>
        startScript(
          'scripts/tenant.ts',
          ['provision', 'late', '--name', 'Late', '--admin-email', 'admin@late.test'],
          { ...world.environment, ...keys },
        );
      const before = await controlSql(world, 'select kid from signing_keys order by kid');
      const holder = new pg.Client(world.installation.controlUrl);
      await holder.connect();
      await holder.query('select pg_advisory_lock($1, $2)', [lockSpaces.slug, lockKey('late')]);
      const running = provision();
      await eventually(async () => (await readLockWaiters(holder)).length > 0);

      await whileBeatsWait(world, async () => {
        await change();
        await holder.end();
        await eventually(() => running.output.stderr !== '');
      });

      const { code } = await running.ended;
      expect(code).to.equal(1);
      expect(running.output.stderr).to.equal(
        'The master key was changed while the command ran, which could not store a secret any more. Run it again.\n',
      );
      expect(await controlSql(world, 'select kid from signing_keys order by kid')).to.deep.equal(
        before,
      );
      const again = await provision().ended;
      expect(again.code, again.stderr).to.equal(0);
    });

    it('a change whose command is killed before its end changes nothing, and ends when it is run again', async () => {
      const keys = { MASTER_KEY: next, MASTER_KEY_PREVIOUS: former };
      const reseal = () =>
        startScript('scripts/control.ts', ['reseal', '--yes'], { ...world.environment, ...keys });
      const holder = new pg.Client(world.installation.controlUrl);
      await holder.connect();
      // tenants are sealed again before them
      await holder.query('begin; select from signing_keys for update');
      const running = reseal();
      await eventually(async () => (await readLockWaiters(holder)).length > 0);

      running.process.kill('SIGKILL');
      await running.ended;
      await holder.end();

      expect((await presentKeys(world))[0]?.fingerprint).to.equal(
        boxOf(former).present.fingerprint,
      );
      await openEverySecret(world, boxOf(former));
      const again = await reseal().ended;
      expect(again.code, again.stderr).to.equal(0);
      await openEverySecret(world, boxOf(next));
    });

    it('a change of the master key gives way to a session that holds the row of a tenant and stores a secret then', async () => {
      const secrets = boxOf(former);
      const holder = new pg.Client(world.installation.controlUrl);
      await holder.connect();
      await holder.query('begin');
      await holder.query('select from tenants where id = $1 for update', [world.acme.id]);
      let hasEnded = false;
      const changing = change().finally(() => {
        hasEnded = true;
      });
      await eventually(async () => (await readLockWaiters(holder)).length > 0);

      await holder.query(
        `insert into signing_keys (kid, tenant_id, secret, status) values ('later', $1, $2, 'retiring')`,
        [world.acme.id, secrets.seal(randomBytes(64), owners.signingKey(world.acme.guid, 'later'))],
      );
      expect(hasEnded, 'the change waits').to.equal(false);
      await holder.query('commit');
      await changing;

      expect(await sealedUnder(world, secrets.present.fingerprint)).to.deep.equal([]);
      await openEverySecret(world, boxOf(next));
      await holder.end();
      await controlSql(world, `delete from signing_keys where kid = 'later'`);
    });

    it('a secret that is stored in a table which the change has read already is under the new key when the change ends', async () => {
      const secrets = boxOf(former);
      const client = await world.login(world.acme);
      expect((await client.post(webhooks, webhook)).status).to.equal(201);

      const [holder, storer] = [
        new pg.Client(world.installation.controlUrl),
        new pg.Client(world.installation.controlUrl),
      ];
      await Promise.all([holder.connect(), storer.connect()]);

      const { pid } =
        (await storer.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0] ?? {};

      // The change reads this table after the signing keys.
      await holder.query('begin; select from webhook_tenants for update');
      const changing = change();
      await eventually(async () => (await readLockWaiters(holder)).length > 0);

      let stored: string | undefined;
      const storing = storer
        .query(
          `insert into signing_keys (kid, tenant_id, secret, status) values ('later', $1, $2, 'retiring')`,
          [
            world.acme.id,
            secrets.seal(randomBytes(64), owners.signingKey(world.acme.guid, 'later')),
          ],
        )
        .then(() => 'stored', sqlState)
        .then(result => {
          stored = result;
        });

      const isWaiting = async (): Promise<boolean> => {
        const { rows } = await holder.query('select from pg_locks where not granted and pid = $1', [
          pid,
        ]);
        return rows.length > 0;
      };

      await eventually(async () => stored !== undefined || (await isWaiting()));
      await holder.query('rollback');
      await Promise.all([changing, storing]);

      // The secret is stored only if the change gave way, and began again.
      expect(stored).to.be.oneOf(['SB002', 'stored']);
      expect(await sealedUnder(world, secrets.present.fingerprint)).to.deep.equal([]);
      await openEverySecret(world, boxOf(next));
      await Promise.all([holder.end(), storer.end()]);
      await controlSql(world, `delete from signing_keys where kid = 'later'`);
    });

    it('two changes in opposite directions at the same time leave every secret under one key', async () => {
      await Promise.all([
        change(),
        resealSecrets({ pool: world.installation.pool, secrets: boxOf(former, next) }),
      ]);

      const [row] = await presentKeys(world);
      const present = [boxOf(former), boxOf(next)].find(
        ({ present }) => present.fingerprint === row?.fingerprint,
      );
      await openEverySecret(world, present as SecretBox);
    });

    it('a change of the master key is repeated after a control database of an earlier moment was put back, whose key is the former one', async () => {
      const run = (keys: Keys, script: string, ...args: string[]) =>
        runCommand(`scripts/${script}.ts`, args, { ...world.environment, ...keys });
      const both = { MASTER_KEY: next, MASTER_KEY_PREVIOUS: former };
      const putBack = await saveSecrets(world);
      await change();
      await putBack();

      const refused = await run({ MASTER_KEY: next }, 'tenant', 'list');
      const rotated = await run(both, 'tenant', 'key', 'rotate', 'acme');
      const sealed = await sealedUnder(world, boxOf(former).present.fingerprint);
      const resealed = await run(both, 'control', 'reseal', '--yes');
      const accepted = await run({ MASTER_KEY: next }, 'tenant', 'list');

      expect(refused.stderr).to.include(
        `set MASTER_KEY to the key with the fingerprint ${boxOf(former).present.fingerprint}`,
      );
      expect(rotated.code, rotated.stderr).to.equal(0);
      expect(sealed).to.include('signing_keys.secret');
      expect(resealed.code, resealed.stderr).to.equal(0);
      expect(await sealedUnder(world, boxOf(former).present.fingerprint)).to.deep.equal([]);
      expect(accepted.code, accepted.stderr).to.equal(0);
    });
  });
});

/** A process of the service, which runs in this one. */
interface Process {
  readonly service: RunningServer;
  readonly url: string;
  readonly secrets: SecretBox;
  stop(): Promise<void>;
}

/**
 * The time for which a process that ends still accepts connections: clients go on to another
 * one meanwhile.
 */
const balancerMs = 300;

async function startProcess(world: World, keys: Keys): Promise<Process> {
  const beside = await startServerBeside(world, { ...keys });
  return { ...beside, stop: () => beside.stop(balancerMs) };
}

/**
 * Restarts one process after the other with other keys.
 * @param between is called after each of them
 */
async function replaceEach(
  world: World,
  fleet: Process[],
  keys: Keys,
  between: () => Promise<void>,
): Promise<void> {
  for (const [index, before] of fleet.entries()) {
    fleet[index] = await startProcess(world, keys);
    await before.stop();
    await between();
  }
}

async function isReady({ managementPort }: RunningServer): Promise<boolean> {
  return (await fetch(`http://127.0.0.1:${managementPort}/health/ready`)).status === 200;
}

/** Returns whether a process is not ready for another reason than that it ends. */
async function lacksKey({ managementPort }: RunningServer): Promise<boolean> {
  const response = await fetch(`http://127.0.0.1:${managementPort}/health/ready`).catch(
    () => undefined,
  );
  const { reason } = ((await response?.json()) ?? {}) as { reason?: string };
  return reason !== undefined && reason !== 'stopping';
}

/**
 * Sends refreshes, logins and creations of webhooks without a pause, to each process of the
 * fleet in turn, and reads the readiness of all of them.
 */
function startLoad(fleet: readonly Process[], tenants: readonly TestTenant[]) {
  const statuses: Record<string, number> = {};
  let unready = 0;
  let rounds = 0;
  let isStopped = false;

  const counted = async (sent: Promise<ApiResponse>): Promise<ApiResponse> => {
    const response = await sent.catch(
      error => ({ status: String(error), body: undefined }) as never,
    );
    statuses[response.status] = (statuses[response.status] ?? 0) + 1;
    return response;
  };
  const at = (number: number): Client => new Client((fleet[number % fleet.length] as Process).url);

  const serve = async (tenant: TestTenant, index: number): Promise<void> => {
    const named = { 'X-Tenant': tenant.guid };
    let number = index;
    let tokens = (await at(number).post('/api/v1/auth/login', tenant.admin, named)).body;

    while (!isStopped) {
      const refreshed = await counted(at(++number).post('/api/v1/auth/refresh', tokens, named));
      tokens = refreshed.body;
      const { body } = await counted(at(++number).post('/api/v1/auth/login', tenant.admin, named));
      // a user has at most 20 sessions
      await new Client(at(number).url, body).post('/api/v1/auth/logout');

      const client = new Client(at(number).url, tokens);
      const created = await counted(client.post(webhooks, webhook));
      await client.at(at(number).url).delete(`${webhooks}/${created.body?.Id}`);

      for (const { service } of fleet) if (await lacksKey(service)) unready++;
      rounds++;
      await turn();
    }
  };
  const serving = Promise.all(tenants.map(serve));

  return {
    /** Resolves when each tenant has been served twice from now on. */
    round: async (): Promise<void> => {
      const until = rounds + 2 * tenants.length;
      await eventually(() => rounds >= until);
    },
    stop: async () => {
      isStopped = true;
      await serving;
      return { statuses, unready };
    },
  };
}

/** The steps of the section of the handbook, without the first one, which makes the new key. */
async function handbookSteps(): Promise<[string, string, string]> {
  const page = await readFile(new URL('../../docs/operate/people.md', import.meta.url), 'utf8');
  const section = page.split('## Change the master key\n')[1]?.split('\n## ')[0] ?? '';
  const steps = section.split(/^\d\. /m).slice(1);
  expect(steps).to.have.length(4);
  return steps.slice(1) as [string, string, string];
}

/** The commands of a step, as words after `bin/backoffice`. */
function commandsOf(step: string): string[][] {
  const lines = [...step.matchAll(/^ *bin\/backoffice (.+)$/gm)].map(([, line = '']) =>
    line.split(' '),
  );
  expect(lines).to.not.deep.equal([]);
  return lines;
}

/** Runs `work` while no beat of a process is confirmed: none knows of a change of the key. */
async function whileBeatsWait(world: World, work: () => Promise<void>): Promise<void> {
  await withConnection(world.installation.controlUrl, async holder => {
    await holder.query('begin; lock table processes in share mode');
    await work();
    await holder.query('rollback');
  });
}

function presentKeys(world: World) {
  return controlSql<{ fingerprint: string }>(
    world,
    'select key_fingerprint as fingerprint from installation',
  );
}

/**
 * Returns the columns, of all of the control database, that have a value which this key has
 * sealed.
 */
async function sealedUnder(world: World, fingerprint: string): Promise<string[]> {
  const columns = await controlSql<{ table: string; column: string }>(
    world,
    `select table_name as "table", column_name as "column" from information_schema.columns
      where table_schema = 'public' and data_type = 'bytea' order by 1, 2`,
  );
  const found: string[] = [];
  for (const { table, column } of columns) {
    const rows = await controlSql(
      world,
      `select from "${table}" where substr("${column}", 1, 22) = ? limit 1`,
      [Buffer.from(fingerprint)],
    );
    if (rows.length > 0) found.push(`${table}.${column}`);
  }
  return found;
}

/**
 * Stores a value that a key has sealed in a column.
 * @returns the SQLSTATE of the error
 */
async function storeUnder(
  world: World,
  column: string,
  secrets: SecretBox,
): Promise<string | undefined> {
  const [table, name] = column.split('.');
  const sealed = secrets.seal('secret', 'owner');
  return controlSql(world, `update ${table} set ${name} = ?`, [sealed]).then(
    () => 'stored',
    sqlState,
  );
}

/** @throws when a secret of the control database does not open, as `control reseal` finds */
async function openEverySecret(world: World, secrets: SecretBox): Promise<void> {
  const count = await resealSecrets({ pool: world.installation.pool, secrets }, true);
  expect(count).to.be.above(5);
}

/**
 * Saves what is sealed.
 * @returns puts it back, with the fingerprint of the key, as a restore does
 */
async function saveSecrets(world: World): Promise<() => Promise<void>> {
  const tables = [
    ['installation', 'id', 'key_fingerprint', 'master_key_canary'],
    ['tenants', 'id', 'role_password'],
    ['tenant_databases', 'id', 'role_password'],
    ['signing_keys', 'kid', 'secret'],
  ] as const;
  await controlSql(world, 'create schema saved');
  for (const [table] of tables) {
    await controlSql(world, `create table saved.${table} as table ${table}`);
  }

  return () =>
    withConnection(world.installation.controlUrl, async client => {
      await client.query('begin; set local session_replication_role = replica');
      for (const [table, key, ...columns] of tables) {
        const values = columns.map(column => `${column} = s.${column}`);
        await client.query(
          `update ${table} t set ${values.join(', ')} from saved.${table} s where s.${key} = t.${key}`,
        );
      }
      await client.query('commit; drop schema saved cascade');
    });
}

/** An empty control database of its own. */
async function createControl(): Promise<{ url: string; drop(): Promise<unknown> }> {
  const name = `master_key_${randomBytes(5).toString('hex')}`;
  await withConnection(postgresUrl(), client =>
    client.query(`create database ${name} template ${controlTemplate} strategy file_copy`),
  );
  return {
    url: databaseUrl(postgresUrl(), name),
    drop: () =>
      withConnection(postgresUrl(), client => client.query(`drop database ${name} with (force)`)),
  };
}
