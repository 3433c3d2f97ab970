import type {
  PublicKeyCredentialCreationOptionsJSON,
  PublicKeyCredentialRequestOptionsJSON,
} from '@simplewebauthn/server';
import { passkeyOrigins, rpIdOf } from '../../../control/passkey-origins.ts';
import type { TenantRecord } from '../../../control/records.ts';
import { problem } from '../../../lib/problems.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { SentAssertion, SentAttestation } from './passkey-fields.ts';

/** The time that a browser gives its user, in ms: a challenge lives as long. */
const timeoutMs = 300_000;
/** EdDSA, ES256 and RS256 (RFC 9053 §2, RFC 8812 §2): what all authenticators have one of. */
const algorithms = [-8, -7, -257];

/** A passkey as it is stored. */
export interface StoredPasskey {
  readonly id: string;
  readonly credentialId: Buffer;
  /** As COSE has it (RFC 9052 §7). */
  readonly publicKey: Buffer;
  readonly transports: readonly string[];
  /** The host of the pages on which it works. */
  readonly rpId: string;
}

/** Returns the RP ID for the page of a request; undefined for a tenant without such pages. */
export function rpIdFor({ tenant, origin }: RequestContext): string | undefined {
  const origins = passkeyOrigins(tenant);
  const own = origins.find(each => each === origin.webOrigin) ?? origins[0];

  return own === undefined ? undefined : rpIdOf(own);
}

/**
 * Returns the RP ID for the page of a request.
 * @throws {Problem} `wrong_state` for a tenant without pages on which passkeys work
 */
export function requireRpId(context: RequestContext): string {
  const rpId = rpIdFor(context);
  if (rpId !== undefined) return rpId;

  throw problem('wrong_state', {
    detail: 'Passkeys work on no page of this tenant yet. Ask the operator to name one.',
  });
}

/** The person for whom a passkey shall be made. */
interface PasskeyPerson {
  readonly guid: string;
  readonly email: string;
}

/**
 * Returns the options with which a browser makes a passkey: `navigator.credentials.create`.
 * @param known the passkeys that the person has, of which no authenticator makes a second one
 */
export function creationOptions(
  rpId: string,
  { name }: Pick<TenantRecord, 'name'>,
  { guid, email }: PasskeyPerson,
  challenge: string,
  known: readonly StoredPasskey[],
) {
  return {
    challenge,
    rp: { id: rpId, name },
    user: { id: userHandleOf(guid), name: email, displayName: email },
    pubKeyCredParams: algorithms.map(alg => ({ type: 'public-key' as const, alg })),
    timeout: timeoutMs,
    attestation: 'none' as const,
    excludeCredentials: known.map(describe),
    authenticatorSelection: {
      residentKey: 'preferred' as const,
      userVerification: 'preferred' as const,
    },
  } satisfies Omit<PublicKeyCredentialCreationOptionsJSON, 'excludeCredentials'> & Described;
}

/**
 * Returns the options with which a browser asks for a passkey: `navigator.credentials.get`.
 * @param allowed the passkeys of the person; none: whatever the authenticator offers
 */
export function requestOptions(
  rpId: string,
  challenge: string,
  userVerification: 'preferred' | 'required',
  allowed: readonly StoredPasskey[] = [],
) {
  return {
    challenge,
    rpId,
    timeout: timeoutMs,
    userVerification,
    allowCredentials: allowed.map(describe),
  } satisfies Omit<PublicKeyCredentialRequestOptionsJSON, 'allowCredentials'> & Described;
}

/** The lists of passkeys, whose transports may be newer than the types of the package. */
interface Described {
  readonly excludeCredentials?: readonly ReturnType<typeof describe>[];
  readonly allowCredentials?: readonly ReturnType<typeof describe>[];
}

function describe({ credentialId, transports }: StoredPasskey) {
  return {
    type: 'public-key' as const,
    id: credentialId.toString('base64url'),
    transports: [...transports],
  };
}

/** Returns the name by which an authenticator knows a person: 16 bytes that say nothing. */
export function userHandleOf(userGuid: string): string {
  return Buffer.from(userGuid.replaceAll('-', ''), 'hex').toString('base64url');
}

/** A passkey that an authenticator has made. */
export interface MadePasskey extends Omit<StoredPasskey, 'id'> {
  readonly signCount: number;
}

/**
 * Checks a new passkey. Its attestation is left out before it is checked: nothing depends on
 * it, and its certificates could name addresses that the service would call.
 * @param isChallenge true for the challenge of the options
 * @returns undefined if it is not one of these options, or of a page of the tenant
 */
export async function checkAttestation(
  tenant: TenantRecord,
  { id, response: { clientDataJSON, attestationObject, transports } }: SentAttestation,
  isChallenge: (challenge: string) => boolean,
): Promise<MadePasskey | undefined> {
  const { verifyRegistrationResponse } = await import('@simplewebauthn/server');
  const origins = passkeyOrigins(tenant);

  try {
    const { verified, registrationInfo: made } = await verifyRegistrationResponse({
      response: {
        id,
        rawId: id,
        type: 'public-key',
        response: {
          clientDataJSON,
          attestationObject: await withoutAttestation(attestationObject),
        },
        clientExtensionResults: {},
      },
      expectedChallenge: isChallenge,
      expectedOrigin: origins,
      expectedRPID: origins.map(rpIdOf),
      requireUserVerification: false,
      supportedAlgorithmIDs: algorithms,
    });
    if (!verified || made.credential.id !== id) return undefined;

    const rpId = rpIdOf(made.origin);
    if (made.rpID !== rpId) return undefined;

    return {
      credentialId: Buffer.from(made.credential.id, 'base64url'),
      publicKey: Buffer.from(made.credential.publicKey),
      signCount: made.credential.counter,
      transports,
      rpId,
    };
  } catch {
    return undefined; // the package throws for whatever is wrong with what a client has sent
  }
}

/** Replaces the statement of an attestation by none, as a browser does. */
async function withoutAttestation(attestationObject: string): Promise<string> {
  const { decodeAttestationObject, isoCBOR } = await import('@simplewebauthn/server/helpers');
  const attestation = decodeAttestationObject(
    Uint8Array.from(Buffer.from(attestationObject, 'base64url')),
  );
  const statement = new Map<string, string>();
  const bytes = isoCBOR.encode(
    new Map<string, string | Uint8Array | typeof statement>([
      ['fmt', 'none'],
      ['attStmt', statement],
      ['authData', attestation.get('authData')],
    ]),
  );

  return Buffer.from(bytes).toString('base64url');
}

/**
 * Checks what a passkey has signed. The counter is compared in the database, where it is taken.
 * @param isChallenge true for the challenge of the options
 * @param isUserVerified true to require that the authenticator has recognised its user
 * @returns the counter of the signature; undefined if it is not of this passkey, these options
 *   or a page of the tenant with the RP ID of the passkey
 */
export async function checkAssertion(
  tenant: TenantRecord,
  { id, response: { clientDataJSON, authenticatorData, signature } }: SentAssertion,
  { credentialId, publicKey, rpId }: StoredPasskey,
  isChallenge: (challenge: string) => boolean,
  isUserVerified: boolean,
): Promise<number | undefined> {
  const { verifyAuthenticationResponse } = await import('@simplewebauthn/server');

  try {
    const { verified, authenticationInfo } = await verifyAuthenticationResponse({
      response: {
        id,
        rawId: id,
        type: 'public-key',
        response: { clientDataJSON, authenticatorData, signature },
        clientExtensionResults: {},
      },
      expectedChallenge: isChallenge,
      expectedOrigin: passkeyOrigins(tenant).filter(origin => rpIdOf(origin) === rpId),
      expectedRPID: rpId,
      credential: {
        id: credentialId.toString('base64url'),
        publicKey: Uint8Array.from(publicKey),
        counter: 0,
      },
      requireUserVerification: isUserVerified,
    });
    return verified ? authenticationInfo.newCounter : undefined;
  } catch {
    return undefined; // the package throws for whatever is wrong with what a client has sent
  }
}
