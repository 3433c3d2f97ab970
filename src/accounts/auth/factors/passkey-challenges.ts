import { createHash } from 'node:crypto';
import type { QueryControl } from '../../../control/database.ts';
import { owners, type SecretBox } from '../../../control/secret-box.ts';

/** Seconds for which a challenge is good. */
const challengeSeconds = 300;
/** Rows removed at a time. A use adds only one, so the table does not grow. */
const batch = 100;

/** The purpose of a challenge: it is good for nothing else. */
export interface ChallengePurpose {
  readonly tenantGuid: string;
  /** `login`, or the session in which a passkey is added. */
  readonly use: 'login' | { readonly sessionId: string };
}

/**
 * Creates a challenge that is stored nowhere: its end, sealed for its purpose with a random
 * nonce. So options that anybody may ask for write no row.
 * @param now in seconds since 1970
 */
export function sealChallenge(secrets: SecretBox, purpose: ChallengePurpose, now: number): string {
  const end = String(Math.floor(now) + challengeSeconds);
  return secrets.seal(end, ownerOf(purpose)).toString('base64url');
}

function ownerOf({ tenantGuid, use }: ChallengePurpose): string {
  const purpose = use === 'login' ? use : `add:${use.sessionId}`;
  return owners.passkeyChallenge(tenantGuid, purpose);
}

// The row outlives the challenge by more than clocks differ.
const insertUse = `
  with expired as (
    delete from used_challenges where ctid = any (array(
      select ctid from used_challenges where expires_at < now()
       order by expires_at limit ${batch} for update skip locked)))
  insert into used_challenges (hash, expires_at)
  values ($1, to_timestamp($2::float8) + interval '1 hour')
  on conflict do nothing returning hash`;

/** The challenge that the client of one request has sent, which its transaction uses. */
export class SentChallenge {
  readonly #secrets: SecretBox;
  readonly #purpose: ChallengePurpose;
  readonly #now: number;
  #accepted: { readonly challenge: Buffer; readonly end: number } | undefined;

  /** @param now in seconds since 1970 */
  constructor(secrets: SecretBox, purpose: ChallengePurpose, now: number) {
    this.#secrets = secrets;
    this.#purpose = purpose;
    this.#now = now;
  }

  /** Returns false for a challenge that has ended or has another purpose, and another text. */
  readonly accept = (text: string): boolean => {
    const challenge = Buffer.from(text, 'base64url');
    const end = this.#open(challenge);
    if (end === undefined || end <= this.#now) return false;

    this.#accepted = { challenge, end };
    return true;
  };

  /**
   * Uses the challenge in the transaction of what it permits: once, at two processes at once too.
   * @returns false if it was used already, or none was accepted
   */
  async use(query: QueryControl): Promise<boolean> {
    if (!this.#accepted) return false;
    const { challenge, end } = this.#accepted;
    const hash = createHash('sha256').update(challenge).digest();

    return (await query('use_challenge', insertUse, [hash, end])).length > 0;
  }

  #open(challenge: Buffer): number | undefined {
    try {
      return Number(this.#secrets.open(challenge, ownerOf(this.#purpose)));
    } catch {
      return undefined; // sealed for another purpose, or not by the service
    }
  }
}
