import type { TokenSettings } from './access-token.ts';

interface TokenSettingsOptions {
  installationId: string;
  /** Unix time in milliseconds. Default: the system's. */
  now: (() => number) | undefined;
}

const audience = 'sales-back-office';

/** Makes the settings of access tokens. The issuer is the id of the installation. */
export function createTokenSettings({
  installationId,
  now = Date.now,
}: TokenSettingsOptions): TokenSettings {
  return { issuer: installationId, audience, now: () => Math.floor(now() / 1_000) };
}
