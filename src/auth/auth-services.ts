import type { Logger } from 'pino';
import type { ControlDatabase } from '../control/database.ts';
import type { Directory } from '../control/directory.ts';
import type { SecretBox } from '../control/secret-box.ts';
import type { BackgroundTasks } from '../log/background-tasks.ts';
import type { TokenSettings } from './access-token.ts';
import type { AccountLink } from './account-link.ts';
import type { MailLimits, PeopleLimits } from './limit-people.ts';
import type { SendTenantMail } from './mail.ts';
import type { Passwords } from './passwords.ts';
import type { UsageCounter } from './usage-counter.ts';

/** The services that the authentication routes use. */
export interface AuthServices {
  control: ControlDatabase;
  directory: Directory;
  log: Logger;
  passwords: Passwords;
  secrets: SecretBox;
  tokens: TokenSettings;
  usage: UsageCounter;
  background: BackgroundTasks;
  sendMail: SendTenantMail;
  mailLimits: MailLimits;
  peopleLimits: PeopleLimits;
  accountLink: AccountLink;
}
