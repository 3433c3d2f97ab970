import { accountMail } from '../auth/account-mail.ts';
import type { SendTenantMail } from '../auth/mail.ts';
import { type ControlDatabase, queryControl } from '../control/database.ts';
import type { TenantRecord } from '../control/records.ts';
import type { DisabledReason } from '../webhooks/endpoint-state.ts';

const reasons: Record<DisabledReason, string> = {
  gone: 'The receiver has responded with status 410: it wants no more messages.',
  failing: 'All attempts of the last 5 days have failed.',
  rights: 'The user who made it was disabled, or may no longer read all that it sends.',
};
const managersText = `
  select email from users u join roles r on r.id = role_id
   where u.tenant_id = $1 and 'settings.write' = any (permissions) and scope = 'All'
     and disabled_at is null and confirmed_at is not null
   order by u.id limit 50`;

/** Returns what tells the users who manage the settings of a tenant that the service has disabled a webhook. */
export function disabledWebhookMail(control: ControlDatabase, sendMail: SendTenantMail, publicUrl: string) {
  return async (tenant: TenantRecord, { url }: { url: string }, reason: DisabledReason): Promise<void> => {
    const { host } = new URL(url); // the rest may contain a secret
    const managers = await queryControl<{ email: string }>(control, 'settings_managers', managersText, [tenant.id]);
    const failures: unknown[] = [];
    for (const { email } of managers) {
      const mail = accountMail({
        to: email,
        subject: `A webhook of ${tenant.name} is disabled`,
        paragraphs: [`Nothing more is sent to\n${host}`, reasons[reason]],
        link: { text: 'What you can do', address: `${publicUrl}/docs/guide/webhooks#when-a-receiver-fails` },
        notes: [
          'What the webhook has not received is kept. Enable it again when its receiver works: it goes on there.',
        ],
      });
      await sendMail(tenant, mail).catch(error => failures.push(error)); // the others get theirs
    }
    if (failures.length > 0) throw failures[0];
  };
}
