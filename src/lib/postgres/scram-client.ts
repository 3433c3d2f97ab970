import type pg from 'pg';
import { type LoginProof, ProvingClient } from '../seams/proving-client.ts';
import { streamOf } from '../seams/stream-of.ts';
import { scramProof } from './scram.ts';

/**
 * A client that proves its password at once (`scramProof`). `pg` does so in ten jobs of
 * WebCrypto, each of which waits for a thread, and computes the keys of the password anew for
 * each connection.
 */
export class ScramClient extends ProvingClient {
  /** The socket below TLS, which replaces the stream when it begins. */
  readonly #socket = streamOf(this);

  /**
   * Ends the connection, and drops the bytes that are not sent yet. If the connection were only
   * closed, the kernel would go on to send them: a change that a silent network has delayed
   * would take effect up to a minute after its request has failed.
   * @param error of the running queries
   */
  abort(error: Error): void {
    const stream = streamOf(this);
    if (stream.destroyed) return;

    const isReset = this.#socket.remoteAddress !== undefined; // connected by TCP
    if (!isReset) {
      stream.destroy(error);
      return;
    }
    this.#socket.resetAndDestroy();
    stream.emit('error', error);
  }

  /**
   * Closes the connection of a login that has failed. A server that still waits for a password
   * keeps it open for a minute, and with it a command that has ended.
   */
  protected leave(): void {
    streamOf(this).destroy();
  }

  protected override prove(
    password: string,
    clientNonce: string,
    data: string,
  ): LoginProof | undefined {
    return scramProof(password, clientNonce, data);
  }
}

/**
 * Ends a connection of a pool, as `ScramClient.abort` does.
 * @param client of a pool that `connectionConfig` has configured, whose clients are such clients
 */
export function abortClient(client: pg.PoolClient, error: Error): void {
  (client as pg.PoolClient & ScramClient).abort(error);
}
