/** The span of the client that a request belongs to. */
export interface RemoteParent {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  readonly spanId: string;
  /** Bit 0: the client records the trace. */
  readonly traceFlags: number;
}

const pattern = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/;

/** Reads the header `traceparent` (W3C Trace Context §3.2); undefined when it is missing or not well-formed. */
export function readTraceparent(header: string | string[] | undefined): RemoteParent | undefined {
  if (typeof header !== 'string') return undefined;
  const [, traceId, spanId, flags] = pattern.exec(header) ?? [];
  // Only version 00 must end after the flags.
  if (!traceId || !spanId || !flags || (header.startsWith('00') && header.length !== 55)) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1 };
}
