/**
 * Why Redis did not count: a code to search for, and the text of Redis or of the connection.
 */
export interface RedisFailure {
  readonly reason: string;
  readonly detail: string;
}

/**
 * Errors of a connection that is no connection any more, which ioredis words without a code.
 */
export const connectionClosed = 'CLOSED';

/** Codes that a server gives in which a part of the keys only is stored. */
const clusterReasons = new Set(['MOVED', 'ASK', 'CLUSTERDOWN', 'CROSSSLOT']);

/**
 * Returns why a call to Redis failed. The text never has the arguments of a command, which
 * contain addresses of clients.
 */
export function redisFailure(error: unknown): RedisFailure {
  const { code, message = '' } = error as { code?: string; message?: string };
  const detail = message.replace(/,? with args beginning with:.*$/s, '');

  return { reason: code ?? replyCode(detail) ?? 'no reply', detail };
}

/**
 * True if Redis is a node of a cluster, which refuses the keys of other nodes: a wrong setting,
 * no failure.
 */
export function isOfCluster({ reason }: RedisFailure): boolean {
  return clusterReasons.has(reason);
}

/** True if Redis is a replica, as a primary is that was replaced and keeps its connections. */
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
