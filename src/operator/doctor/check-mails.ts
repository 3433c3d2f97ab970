import type pg from 'pg';
import { countText } from '../command/texts.ts';
import { type Finding, toFinding } from './finding.ts';

/** Facts on the mails that wait or have failed. */
export interface MailFacts {
  /** Mails that have waited for longer than a mail server makes an unknown sender wait. */
  readonly late: number;
  /** The reason for which the oldest of the mails waits; null: it was not tried. */
  readonly reason: string | null;
  /** Mails of the last day that were refused or given up, by tenant and reason. */
  readonly refused: readonly {
    readonly tenant: string;
    readonly server: string;
    readonly mails: number;
    readonly reason: string;
  }[];
}

/**
 * The wait after which a mail is late. It is longer than two retries, by which a server that
 * greylists has accepted the mail.
 */
const maxWait = `interval '10 minutes'`;

const mailColumns = 'tenant_id, user_id, state, reason, settled_at, expires_at, created_at';
/** SQL: the mails that people have asked for, and the notices. */
const allMails = `
  select ${mailColumns} from mail_deliveries union all select ${mailColumns} from account_notices`;

/** @param client connected to the control database */
export async function readMailFacts(client: pg.Client): Promise<MailFacts> {
  const late = await client.query<{ late: number; reason: string | null }>(
    `select count(*)::int as late, (array_agg(reason order by m.created_at))[1] as reason
       from (${allMails}) m join tenants t on t.id = tenant_id
      where m.state = 'waiting' and t.status = 'active' and m.created_at < now() - ${maxWait}`,
  );
  // A mail without a user is one whose link was withdrawn, or an event: nobody waits for it.
  const refused = await client.query<MailFacts['refused'][number]>(
    `with mails as (${allMails})
     select slug as tenant, s.name as server, count(*)::int as mails, coalesce(reason, 'unknown') as reason
       from mails m join tenants t on t.id = tenant_id join servers s on s.id = t.server_id
      where m.state = 'refused' and m.settled_at > now() - interval '1 day' and m.expires_at > now()
        and t.status = 'active' and not isolated
        and m.user_id is not null
        and not exists (
          select from mails later where later.user_id = m.user_id and later.created_at > m.created_at)
      group by 1, 2, 4 order by 1, 4`,
  );

  return {
    late: late.rows[0]?.late ?? 0,
    reason: late.rows[0]?.reason ?? null,
    refused: refused.rows,
  };
}

/**
 * Reports mails that no mail server accepts, and mails that were refused or given up.
 * @param server the name of the server of the control database
 */
export function checkMails({ late, reason, refused }: MailFacts, server: string): Finding[] {
  const waiting = toFinding(server, {
    check: 'mails_waiting',
    problem:
      `${countText(late, 'mail')} ${late === 1 ? 'has' : 'have'} waited for ten minutes: ` +
      `${reason ?? 'no process of the service sends them'}`,
    remedy:
      'Read the answer of the mail server in the log of the service, in lines with the event ' +
      'mail_failed.',
  });
  const lost = refused.map(each =>
    toFinding(each.server, {
      check: 'mails_refused',
      tenant: each.tenant,
      problem: `${countText(each.mails, 'mail')} to users of ${each.tenant} ${each.mails === 1 ? 'was' : 'were'} not accepted: ${each.reason}`,
      remedy:
        'See to whom, and tell the tenant, whose administrators invite again: ' +
        `bin/backoffice user list ${each.tenant}`,
    }),
  );

  return [...(late > 0 ? [waiting] : []), ...lost];
}
