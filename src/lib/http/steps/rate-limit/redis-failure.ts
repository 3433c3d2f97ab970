import { asError, codeOf } from '../../../narrow.ts';

/**
 * The reason why Redis did not count: a code to search for, and the text of Redis or of the
 * connection.
 */
export interface RedisFailure {
  readonly reason: string;
  readonly detail: string;
}

/** The code of errors of a closed connection, for which ioredis has no code. */
export const connectionClosed = 'CLOSED';

/** Codes of a server that stores only a part of the keys. */
const clusterReasons = new Set(['MOVED', 'ASK', 'CLUSTERDOWN', 'CROSSSLOT']);

/**
 * Returns the reason why a call to Redis failed. The text never has the arguments of a command,
 * which contain addresses of clients.
 */
export function redisFailure(error: unknown): RedisFailure {
  const { message } = asError(error);
  const detail = message.replace(/,? with args beginning with:.*$/s, '');

  return { reason: codeOf(error) ?? replyCode(detail) ?? 'no reply', detail };
}

/**
 * True if Redis is a node of a cluster, which refuses the keys of other nodes: a wrong setting,
 * no failure.
 */
export function isOfCluster({ reason }: RedisFailure): boolean {
  return clusterReasons.has(reason);
}

/** True if Redis is a replica, as a former primary is that keeps its connections. */
export function isReadOnly(error: Error): boolean {
  return redisFailure(error).reason === 'READONLY';
}

/**
 * The first word of an error of Redis, such as `OOM`. Redis 6 puts that of a command of a
 * script inside its text.
 */
function replyCode(text: string): string | undefined {
  if (/max number of clients/.test(text)) return 'MAXCLIENTS';

  const ofScript = /^ERR Error running script.*?-([A-Z]{3,})\b/s.exec(text);
  return (ofScript ?? /^([A-Z]{3,})\b/.exec(text))?.[1];
}
