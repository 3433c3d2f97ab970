import type { ControlDatabase } from '../control/database.ts';
import { readInstallationIdentity } from '../control/installation-id.ts';
import type { TokenSettings } from './access-token.ts';

interface TokenSettingsOptions {
  control: ControlDatabase;
  publicUrl: string;
  /** Unix time in milliseconds. Default: the system's. */
  now: (() => number) | undefined;
}

const audience = 'sales-back-office';
/**
 * Earlier builds named PUBLIC_URL as the issuer of tokens. Such tokens are accepted if they were issued within 24 h
 * after the control database got its id: the time that an upgrade may take, in which processes of the earlier build
 * still run.
 */
const formerIssuerSeconds = 24 * 3_600;

/** Makes the settings of access tokens. The issuer is the id of the installation; its control database is at head. */
export async function createTokenSettings({
  control,
  publicUrl,
  now = Date.now,
}: TokenSettingsOptions): Promise<TokenSettings> {
  const { id: issuer, since } = await readInstallationIdentity(control);
  const formerIssuer = { name: publicUrl, until: since + formerIssuerSeconds };
  return { issuer, formerIssuer, audience, now: () => Math.floor(now() / 1_000) };
}
