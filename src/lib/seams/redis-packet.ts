import type { Redis } from 'ioredis';

/** Keeps commands back until `sendPacket`. Without a connection, does nothing. */
export function beginPacket({ stream }: Redis): void {
  stream?.cork();
}

/** Sends the commands since `beginPacket` in one packet. */
export function sendPacket({ stream }: Redis): void {
  stream?.uncork();
}
