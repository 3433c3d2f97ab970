import pg from 'pg';

/** The login of `pg.Client`, which its types lack. */
interface LoginInternals {
  readonly saslSession: SaslSession;
  readonly password: unknown;
  readonly connection: { sendSCRAMClientFinalMessage(response: string): void };
  _handleAuthSASLContinue(message: { data: string }): Promise<void>;
}

interface SaslSession {
  readonly mechanism: string;
  readonly clientNonce: string;
  /** The last step: `finalizeSession` of `pg` verifies `serverSignature` after `SASLResponse`. */
  message: string;
  response: string;
  serverSignature: string;
}

/** The proof of a password (RFC 5802), and the signature by which the server proves itself. */
export type LoginProof = Pick<SaslSession, 'response' | 'serverSignature'>;

/** A client that proves its password by a function of its own, in place of that of `pg`. */
export abstract class ProvingClient extends pg.Client {
  /**
   * Returns the proof of a password; undefined: `pg` proves it.
   * @param clientNonce of the first message of the client
   * @param data the first message of the server
   */
  protected abstract prove(
    password: string,
    clientNonce: string,
    data: string,
  ): LoginProof | undefined;

  /** Called by `pg` with the first message of the server. */
  async _handleAuthSASLContinue(message: { data: string }): Promise<void> {
    const login = this as unknown as LoginInternals;
    const { saslSession: session, password, connection } = login;
    const isPlain = session.mechanism === 'SCRAM-SHA-256' && typeof password === 'string';
    const proof = isPlain ? this.prove(password, session.clientNonce, message.data) : undefined;
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
