import { plainSegments, type TrustedReceiver } from '../../lib/config/trusted-receivers.ts';

/** The receivers that the operator trusts for one tenant. */
export type TrustedReceivers = readonly Pick<TrustedReceiver, 'origin' | 'segments'>[];

/** Returns those of all trusted receivers that are meant for a tenant. */
export function receiversOf(
  trusted: readonly TrustedReceiver[],
  tenantGuid: string,
): TrustedReceivers {
  return trusted.filter(receiver => receiver.tenantGuid === tenantGuid);
}

/**
 * True for a URL whose address is not checked: its scheme, host and port are those of a trusted
 * receiver, and its path begins with the segments of that receiver.
 */
export function isTrusted(text: string, trusted: TrustedReceivers): boolean {
  const segments = plainSegments(text);
  const origin = URL.parse(text)?.origin;

  return (
    segments !== undefined &&
    trusted.some(
      receiver =>
        receiver.origin === origin &&
        receiver.segments.every((segment, index) => segment === segments[index]),
    )
  );
}
