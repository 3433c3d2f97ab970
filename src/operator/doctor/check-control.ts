import { randomBytes } from 'node:crypto';
import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { maxSkewMs, reportedSkewMs } from '../../control/process-clock.ts';
import { owners, signingKeyBytes } from '../../control/secret-box.ts';
import { quoteIdentifier as quote, quoteLiteral } from '../../lib/postgres/quote.ts';
import { unverifiedHost, unverifiedText } from '../../lib/postgres/unverified-host.ts';
import { tenantVerifier } from '../databases/protocol/create-database.ts';
import { isLeftover } from '../databases/verbs/list-databases.ts';
import { textOrderFault } from '../schema/text-order.ts';
import { checkArchives, checkRetention } from './check-archives.ts';
import { checkControlRestore } from './check-control-restore.ts';
import { checkFactors } from './check-factors.ts';
import { checkMails } from './check-mails.ts';
import { checkProviders } from './check-providers.ts';
import { checkWebhooks } from './check-webhooks.ts';
import type { CheckedTenant, ControlFacts } from './control-facts.ts';
import { type Finding, type Report, toFinding } from './finding.ts';

/**
 * Checks the control database itself: provisioning that no process continues, signing keys and
 * secrets.
 */
export function checkControl(installation: Installation, facts: ControlFacts): Finding[] {
  const controlServer = facts.servers.find(({ adminUrl }) => !adminUrl)?.name ?? 'control';
  return [
    ...facts.servers.flatMap(server => checkServerUrl(installation, server)),
    ...checkLeftovers(facts),
    ...checkArchives(facts.archives, controlServer),
    ...checkRetention(facts.overdueRetention),
    ...checkControlRestore(facts.controlRestore, controlServer),
    ...checkTextOrder(facts, controlServer),
    ...checkLimits(facts, controlServer),
    ...checkProxies(facts, controlServer),
    ...checkClocks(facts, controlServer),
    ...checkFactors(facts.closedFactors),
    ...checkProviders(facts.lostProviders),
    ...checkWebhooks(facts.lateWebhooks),
    ...checkMails(facts.mails, controlServer),
    ...facts.tenants.flatMap(tenant => checkTenantRow(installation, facts, tenant)),
  ];
}

/**
 * Checks the URL of a server, without a connection: the findings are the same when the server
 * is away.
 */
function checkServerUrl({ servers }: Installation, server: Server): Finding[] {
  const { name, adminUrl } = server;
  let url: string;
  try {
    url = servers.adminUrl(server);
  } catch {
    const problem = `the URL of server ${name} cannot be decrypted with MASTER_KEY`;
    const remedy = `Give its URL again: bin/backoffice server add ${name}`;
    return [toFinding(name, { check: 'secret_does_not_open', problem, remedy })];
  }

  const host = unverifiedHost(url);
  if (host === undefined) return [];

  const remedy = adminUrl
    ? 'Turn TLS on there, and add the server again with sslmode=verify-full in its URL: ' +
      `bin/backoffice server add ${name}`
    : 'Turn TLS on there, and write sslmode=verify-full into each DATABASE_URL: that of the ' +
      'service and yours.';

  return [toFinding(name, { check: 'unverified_tls', problem: unverifiedText(host), remedy })];
}

/** Reports a control database that somebody else has made, and not `control migrate`. */
function checkTextOrder({ textOrder }: ControlFacts, server: string): Finding[] {
  const fault = textOrderFault(textOrder, { takesAscii: true });
  if (fault === undefined) return [];

  const problem = `the control database ${fault}: lists of users, roles and their history have that order`;
  const remedy =
    'Stop the service, archive the control database with all tenants (bin/backoffice backup run --all), rename it, and ' +
    'restore the archive: bin/backoffice control restore';
  return [toFinding(server, { check: 'control_text_order', problem, remedy })];
}

function checkTenantRow(
  installation: Installation,
  facts: ControlFacts,
  tenant: CheckedTenant,
): Finding[] {
  const keys = facts.signingKeys.get(tenant.id) ?? [];
  const { slug, guid, status, server, rolePassword } = tenant;
  const findings: Finding[] = [];
  const report = (check: Finding['check'], problem: string, remedy: string) =>
    findings.push(toFinding(server.name, { check, tenant: slug, problem, remedy }));

  if (status === 'provisioning' && !facts.isBusy(tenant)) {
    report(
      'stuck_provisioning',
      `${slug} is not completely provisioned, and no process is working on it`,
      `Run the provision, clone or restore command of ${slug} again to complete it. ` +
        `Or remove it: bin/backoffice purge ${slug}`,
    );
  }

  if (
    status !== 'provisioning' &&
    !canDecrypt(installation, rolePassword, owners.rolePassword(guid))
  ) {
    findings.push(toFinding(server.name, lostPassword(installation, tenant)));
  }

  for (const { kid, secret } of keys) {
    if (!canDecrypt(installation, secret, owners.signingKey(guid, kid), signingKeyBytes)) {
      report(
        'secret_does_not_open',
        `signing key ${kid} cannot be decrypted with MASTER_KEY`,
        `Disable the key: bin/backoffice key disable ${slug} ${kid}`,
      );
    }
  }

  if (!keys.some(key => key.status === 'active')) {
    report(
      'missing_key',
      `${slug} has no active signing key, so no user can log in`,
      `Make a key: bin/backoffice key rotate ${slug}`,
    );
  }

  return findings;
}

/** Reports a password that nobody can read any more: the role gets another one. */
function lostPassword({ secrets }: Installation, { guid, slug, roleName }: CheckedTenant): Report {
  const password = randomBytes(24).toString('base64url');

  return {
    check: 'secret_does_not_open',
    tenant: slug,
    problem: `the password of login role ${roleName} cannot be decrypted with MASTER_KEY`,
    remedy: 'Give the role another one',
    statements: [
      `alter role ${quote(roleName)} password ${quoteLiteral(tenantVerifier(password))}`,
    ],
    control: {
      text: `with sealed as (update tenants set role_password = $2, updated_at = now() where guid = $1 returning id)
             update tenant_databases set role_password = $2
              where tenant_id = (select id from sealed) and state = 'current'`,
      values: [guid, secrets.seal(password, owners.rolePassword(guid))],
    },
    kind: 'named',
  };
}

/** Returns whether a secret can be decrypted for its owner, and has at least `minBytes`. */
function canDecrypt(
  { secrets }: Installation,
  sealed: Uint8Array,
  owner: string,
  minBytes = 1,
): boolean {
  try {
    return secrets.open(sealed, owner).length >= minBytes;
  } catch {
    return false;
  }
}

/**
 * Reports databases that are neither current nor wanted, and tenants behind a fence, unless a
 * process works on them.
 */
function checkLeftovers({ stored }: ControlFacts): Finding[] {
  const left = stored.filter(({ isBusy, isNew, isPurging }) => !isBusy && !isNew && !isPurging);

  return [
    ...left.filter(isLeftover).map(({ server, slug, database, state }) =>
      toFinding(server, {
        check: 'leftover_database',
        tenant: slug,
        problem:
          `database ${database} of ${slug} ` +
          `${whys[state] ?? 'is still there, and its time has passed'}`,
        remedy: `Drop it: bin/backoffice databases prune ${slug}`,
      }),
    ),
    ...left
      .filter(({ state }) => state === 'current')
      .map(({ server, slug, fence }) =>
        toFinding(server, {
          check: 'unfinished_switch',
          tenant: slug,
          problem:
            `a move or a swap of ${slug} was begun, and no process ` +
            `continues${fence === 'closed' ? ', and its requests get 503 meanwhile' : ''}`,
          remedy:
            'Run that command again. Or keep the database that it has: ' +
            `bin/backoffice databases prune ${slug}`,
        }),
      ),
  ];
}

const whys: Readonly<Record<string, string>> = {
  reserved: 'is not complete, and no process continues',
  condemned: 'is to be dropped, and no process does it',
};

/**
 * Reports several processes of the service of which some count the limits of requests by
 * themselves: a client then has its limit several times.
 * @param server the name of the server of the control database
 */
function checkLimits({ processes }: ControlFacts, server: string): Finding[] {
  const services = processes.filter(({ kind }) => kind === 'service');
  const alone = services.filter(({ sharesLimits }) => sharesLimits === false);
  if (services.length < 2 || alone.length === 0) return [];

  const names = alone.map(({ host, pid }) => `${host} pid ${pid}`).join(', ');

  return [
    toFinding(server, {
      check: 'limits_not_shared',
      problem:
        `of ${services.length} processes, ${alone.length} without REDIS_URL count the limits of ` +
        `requests by themselves: ${names}`,
      remedy:
        'Set REDIS_URL to the same Redis in all processes, and restart them. Or run one process.',
    }),
  ];
}

/**
 * Reports the trusted networks of running processes in which there are probably clients, too,
 * who may then choose their address.
 * @param server the name of the server of the control database
 */
function checkProxies({ processes }: ControlFacts, server: string): Finding[] {
  const wide = new Set(processes.flatMap(({ wideProxies }) => wideProxies ?? []));
  if (wide.size === 0) return [];

  return [
    toFinding(server, {
      check: 'wide_proxies',
      problem:
        `TRUSTED_PROXIES has ${[...wide].sort().join(' and ')}, and TRUSTED_HOPS is not set: a client with an ` +
        'address in there may choose the address that it counts as',
      remedy:
        'Set TRUSTED_HOPS to the number of proxies on every way to the service, and restart it.',
    }),
  ];
}

/**
 * Reports processes of the service whose clock is 5 s or more away from that of the control
 * database.
 * @param server the name of the server of the control database
 */
function checkClocks({ processes }: ControlFacts, server: string): Finding[] {
  const services = processes.filter(({ kind }) => kind === 'service');

  return services.flatMap(({ host, pid, clockAheadMs }) => {
    const skewMs = Math.abs(clockAheadMs ?? 0);
    if (skewMs < reportedSkewMs) return [];

    const direction = (clockAheadMs ?? 0) > 0 ? 'ahead of' : 'behind';
    const effect = skewMs < maxSkewMs ? '' : ', so it is not ready';
    const bound = (skewMs < maxSkewMs ? reportedSkewMs : maxSkewMs) / 1_000;
    return toFinding(server, {
      check: 'clock_differs',
      problem:
        `the clock of ${host} (pid ${pid}) is ${bound} s or more ${direction} that of the ` +
        `control database${effect}`,
      remedy:
        `Set the clocks of ${host} and of the database server right, and check their time ` +
        'synchronisation: timedatectl',
    });
  });
}
