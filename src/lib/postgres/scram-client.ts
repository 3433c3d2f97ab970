import type { Socket } from 'node:net';
import pg from 'pg';
import { scramProof } from './scram.ts';

/** The login of `pg.Client`, which its types lack. */
interface LoginInternals {
  readonly saslSession: {
    readonly mechanism: string;
    readonly clientNonce: string;
    /**
     * The last step: `finalizeSession` of `pg` verifies `serverSignature` after `SASLResponse`.
     */
    message: string;
    response: string;
    serverSignature: string;
  };
  readonly password: unknown;
  readonly connection: { sendSCRAMClientFinalMessage(response: string): void };
  _handleAuthSASLContinue(message: { data: string }): Promise<void>;
}

/**
 * A client that proves its password at once (`scramProof`). `pg` does so in ten jobs of
 * WebCrypto, each of which waits for a thread, and computes the keys of the password anew for
 * each connection.
 */
export class ScramClient extends pg.Client {
  /** The socket below TLS, which replaces the stream when it begins. */
  readonly #socket = this.connection.stream as Socket;

  /**
   * Ends the connection, and drops the bytes that are not sent yet. If the connection were only
   * closed, the kernel would go on to send them: a change that a silent network has delayed
   * would take effect up to a minute after its request has failed.
   * @param error of the running queries
   */
  abort(error: Error): void {
    const { stream } = this.connection;
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
    this.connection.stream.destroy();
  }

  /** Called by `pg` with the first message of the server. */
  async _handleAuthSASLContinue(message: { data: string }): Promise<void> {
    const login = this as unknown as LoginInternals;
    const { saslSession: session, password, connection } = login;
    const isPlain = session.mechanism === 'SCRAM-SHA-256' && typeof password === 'string';
    const proof = isPlain ? scramProof(password, session.clientNonce, message.data) : undefined;
    if (!proof) {
      return (pg.Client.prototype as unknown as LoginInternals)._handleAuthSASLContinue.call(
        this,
        message,
      );
    }

    Object.assign(session, proof, { message: 'SASLResponse' });
    connection.sendSCRAMClientFinalMessage(proof.response);
  }
}

/**
 * Ends a connection of a pool, as `ScramClient.abort` does.
 * @param client of a pool that `connectionConfig` has configured, whose clients are such clients
 */
export function abortClient(client: pg.PoolClient, error: Error): void {
  (client as pg.PoolClient & ScramClient).abort(error);
}
