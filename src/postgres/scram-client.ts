import pg from 'pg';
import { scramProof } from './scram.ts';

/** The login of `pg.Client`, which its types lack. */
interface LoginInternals {
  readonly saslSession: {
    readonly mechanism: string;
    readonly clientNonce: string;
    /** The last step: `finalizeSession` of `pg` verifies `serverSignature` after `SASLResponse`. */
    message: string;
    response: string;
    serverSignature: string;
  };
  readonly password: unknown;
  readonly connection: { sendSCRAMClientFinalMessage(response: string): void };
  _handleAuthSASLContinue(message: { data: string }): Promise<void>;
}

/**
 * A client that proves its password at once (`scramProof`). `pg` does so in ten jobs of WebCrypto, each of which waits
 * for a thread, and computes the keys of the password anew for each connection.
 */
export class ScramClient extends pg.Client {
  /** Called by `pg` with the first message of the server. */
  async _handleAuthSASLContinue(message: { data: string }): Promise<void> {
    const login = this as unknown as LoginInternals;
    const { saslSession: session, password, connection } = login;
    const isPlain = session.mechanism === 'SCRAM-SHA-256' && typeof password === 'string';
    const proof = isPlain ? scramProof(password, session.clientNonce, message.data) : undefined;
    if (!proof) return (pg.Client.prototype as unknown as LoginInternals)._handleAuthSASLContinue.call(this, message);
    Object.assign(session, proof, { message: 'SASLResponse' });
    connection.sendSCRAMClientFinalMessage(proof.response);
  }
}
