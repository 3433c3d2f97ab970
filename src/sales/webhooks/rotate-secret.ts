import { isoTime } from '../../lib/postgres/iso-time.ts';
import { preparedStatement, type Statement } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import { createSecret, openOwn, type SecretSealer } from './webhook-secret.ts';

/** The time for which a former secret signs beside its successor. */
export const overlapHours = 24;
/** Maximum former secrets: each of them is a signature of each message. */
export const maxFormer = 5;

interface StoredSecrets {
  /** Sealed. */
  readonly secret: Buffer;
  /** Sealed, the newest first; those whose time has ended are left out. */
  readonly previous: readonly Buffer[];
  /** The times at which these end, in their order, as ISO 8601. */
  readonly previousUntil: readonly string[];
}

/** The webhook, its new secret, sealed, in base64, and the end of its newest former one. */
type RotatedSecret = {
  readonly Id: number;
  readonly Sealed: string;
  readonly PreviousUntil: string | null;
};

interface RotateOptions {
  readonly webhookId: number;
  readonly transaction: TenantTransaction;
  readonly sealer: SecretSealer;
  /** True to end all former secrets at once, also the one that is replaced. */
  readonly endPrevious: boolean;
  /** ms since 1970 */
  readonly now: number;
}

/**
 * Returns the statement that replaces the secret of a webhook which the transaction has locked.
 * Each former secret keeps its time: the receiver may know any of them, because the response
 * with a newer one may have been lost. A secret that another tenant's key has sealed signs
 * nothing, as in a clone, and is not kept.
 * @throws {Problem} `limit_reached` when the webhook has as many former secrets as it may have
 */
export async function rotateSecret({
  webhookId,
  transaction,
  sealer,
  endPrevious,
  now,
}: RotateOptions): Promise<Statement<RotatedSecret>> {
  const [row] = await transaction.query(selectSecrets(webhookId, now));
  const { secret, previous, previousUntil } = row!;

  const oldest = previousUntil.at(-1);
  if (!endPrevious && oldest !== undefined && previous.length >= maxFormer) {
    throw problem('limit_reached', {
      detail:
        `The webhook has ${maxFormer} former secrets that still sign. The oldest of them ends at ` +
        `${oldest}: rotate then, or end all of them now with endPrevious=true.`,
    });
  }

  const until = new Date(now + overlapHours * 3_600_000).toISOString();
  const former = [
    { sealed: secret, until },
    ...previous.map((sealed, at) => ({ sealed, until: previousUntil[at]! })),
  ];
  const kept = endPrevious
    ? []
    : former.filter(({ sealed }) => openOwn(sealer, sealed, webhookId) !== undefined);

  return preparedStatement(replaceText, [
    webhookId,
    sealer.seal(createSecret(), webhookId),
    kept.map(({ sealed }) => sealed),
    kept.map(each => each.until),
    kept[0]?.until ?? null,
  ]);
}

const selectSecrets = (webhookId: number, now: number): Statement<StoredSecrets> =>
  preparedStatement(
    `select secret, ${formerSecrets('$2')} as previous,
            array(select ${isoTime('until')} from ${formerOf} where until > to_timestamp($2::float8 / 1000)
                   order by place) as "previousUntil"
       from webhook_secrets where webhook_id = $1`,
    [webhookId, now],
  );

const formerOf =
  'unnest(previous, previous_until) with ordinality as former (sealed, until, place)';

/**
 * SQL: the former secrets of a row of `webhook_secrets` that still sign, the newest first.
 * @param now ms since 1970
 */
export function formerSecrets(now: string): string {
  return `array(select sealed from ${formerOf} where until > to_timestamp(${now}::float8 / 1000) order by place)`;
}

/** The endpoint is tried again at once: its receiver may have refused the messages before. */
const replaceText = `
  with due as (update webhooks set next_attempt_at = null, version = version + 1 where id = $1)
  update webhook_secrets set secret = $2, previous = $3, previous_until = $4 where webhook_id = $1
  returning webhook_id as "Id", encode(secret, 'base64') as "Sealed",
            ${isoTime('$5::timestamptz')} as "PreviousUntil"`;
