import type { Logger } from 'pino';
import type { ControlDatabase } from '../../control/database.ts';
import type { Directory } from '../../control/directory.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import type { TrustedProvider } from '../../lib/config/trusted-providers.ts';
import type { Rate } from '../../lib/http/steps/rate-limit/sliding-window.ts';
import type { Providers } from '../../lib/oidc/providers.ts';
import type { MailDispatcher } from '../mails/mail-dispatcher.ts';
import type { LeasedMail } from '../mails/mail-queue.ts';
import type { LeasedNotice } from '../mails/notice-queue.ts';
import type { RegularWork } from '../regular-work.ts';
import type { TokenSettings } from './access-token.ts';
import type { FailedLogins } from './failed-logins.ts';
import type { PeopleLimits } from './limit-people.ts';
import type { Passwords } from './passwords.ts';
import type { ProgramKeyUses } from './program-key-uses.ts';
import type { UsageCounter } from './usage-counter.ts';

/** The services that the authentication routes use. */
export interface AuthServices {
  control: ControlDatabase;
  directory: Directory;
  log: Logger;
  passwords: Passwords;
  /** The setting `PASSWORD_MIN_LENGTH`, in code points: see `minPasswordLength`. */
  passwordMinLength: number;
  secrets: SecretBox;
  tokens: TokenSettings;
  usage: UsageCounter;
  keyUses: Pick<ProgramKeyUses, 'note'>;
  failedLogins: Pick<FailedLogins, 'note'>;
  mails: Pick<MailDispatcher<LeasedMail>, 'wake'>;
  notices: Pick<MailDispatcher<LeasedNotice>, 'wake'>;
  regularWork: Pick<RegularWork, 'wake'>;
  /** Maximum mails to one account. */
  mailRate: Rate;
  peopleLimits: PeopleLimits;
  /** Verifies tokens of the providers by which tenants sign in. */
  providers: Pick<Providers, 'verifyIdToken' | 'verifyLogoutToken'>;
  /** The setting `TRUSTED_PROVIDERS`. */
  trustedProviders: readonly TrustedProvider[];
  /** The setting `APP_URL`: the address of the pages of all tenants; undefined: there is none. */
  appUrl: string | undefined;
}
