import type { ControlDatabase } from '../control/database.ts';
import { readInstallationIdentity } from '../control/installation-id.ts';
import type { TokenSettings } from './access-token.ts';

interface TokenSettingsOptions {
  control: ControlDatabase;
  /** Unix time in milliseconds. Default: the system's. */
  now: (() => number) | undefined;
}

const audience = 'sales-back-office';
/** Makes the settings of access tokens. The issuer is the id of the installation; its control database is at head. */
export async function createTokenSettings({ control, now = Date.now }: TokenSettingsOptions): Promise<TokenSettings> {
  const { id: issuer } = await readInstallationIdentity(control);
  return { issuer, audience, now: () => Math.floor(now() / 1_000) };
}
