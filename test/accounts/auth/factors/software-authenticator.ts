import {
  createHash,
  createSign,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';

type CborKey = number | string;
type Cbor = number | string | Uint8Array | Map<CborKey, Cbor>;

/** Encodes what an attestation needs of CBOR (RFC 8949), by no library of the service. */
function cbor(value: Cbor): Buffer {
  if (typeof value === 'number') return value < 0 ? head(1, -1 - value) : head(0, value);
  if (typeof value === 'string') {
    return Buffer.concat([head(3, Buffer.byteLength(value)), Buffer.from(value)]);
  }
  if (value instanceof Uint8Array) return Buffer.concat([head(2, value.length), value]);

  const entries = [...value].flatMap(([key, each]) => [cbor(key), cbor(each)]);
  return Buffer.concat([head(5, value.size), ...entries]);
}

function head(type: number, length: number): Buffer {
  if (length < 24) return Buffer.from([(type << 5) | length]);
  if (length < 256) return Buffer.from([(type << 5) | 24, length]);
  return Buffer.from([(type << 5) | 25, length >> 8, length & 255]);
}

const sha256 = (data: string | Uint8Array): Buffer => createHash('sha256').update(data).digest();
const base64url = (data: string | Uint8Array): string => Buffer.from(data).toString('base64url');

/** The page on which a passkey is used, and what its authenticator does. */
interface Ceremony {
  /** The page; the host of the options with https by default. */
  readonly origin?: string;
  /** The RP ID that the authenticator takes, whatever the options say. */
  readonly rpId?: string;
  /** True if the authenticator has recognised its user. */
  readonly isVerified?: boolean;
  /** The counter of the signature; one more than the last one by default. */
  readonly count?: number;
  /** The statement of an attestation in place of none. */
  readonly attestation?: { readonly format: string; readonly statement: Map<string, Cbor> };
}

interface CreationOptions {
  readonly challenge: string;
  readonly rp: { readonly id: string };
  readonly user: { readonly id: string };
}

interface RequestOptions {
  readonly challenge: string;
  readonly rpId: string;
}

/** An authenticator with one passkey (WebAuthn level 3), and the browser in front of it. */
export class SoftwareAuthenticator {
  readonly credentialId: string = base64url(randomBytes(20));
  #key: KeyObject | undefined;
  #userHandle = '';
  #count = 0;

  /** Makes the passkey, as `navigator.credentials.create` does. */
  create(
    { challenge, rp, user }: CreationOptions,
    {
      origin = `https://${rp.id}`,
      rpId = rp.id,
      isVerified = true,
      count,
      attestation,
    }: Ceremony = {},
  ) {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    this.#key = privateKey;
    this.#userHandle = user.id;

    const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
    const cose = new Map<CborKey, Cbor>([
      [1, 2],
      [3, -7],
      [-1, 1],
      [-2, Buffer.from(x, 'base64url')],
      [-3, Buffer.from(y, 'base64url')],
    ]);
    const id = Buffer.from(this.credentialId, 'base64url');
    const authData = Buffer.concat([
      this.#authenticatorData(rpId, isVerified, 0x40, count),
      Buffer.alloc(16),
      Buffer.from([0, id.length]),
      id,
      cbor(cose),
    ]);
    const attestationObject = new Map<CborKey, Cbor>([
      ['fmt', attestation?.format ?? 'none'],
      ['attStmt', attestation?.statement ?? new Map()],
      ['authData', authData],
    ]);

    return {
      id: this.credentialId,
      rawId: this.credentialId,
      type: 'public-key',
      authenticatorAttachment: 'platform',
      clientExtensionResults: {},
      response: {
        clientDataJSON: clientData('webauthn.create', challenge, origin),
        attestationObject: base64url(cbor(attestationObject)),
        transports: ['internal', 'hybrid'],
      },
    };
  }

  /** Signs with the passkey, as `navigator.credentials.get` does. */
  get(
    { challenge, rpId: ofOptions }: RequestOptions,
    { origin = `https://${ofOptions}`, rpId = ofOptions, isVerified = true, count }: Ceremony = {},
  ) {
    if (!this.#key) throw new Error('the authenticator has no passkey');
    const clientDataJSON = clientData('webauthn.get', challenge, origin);
    const authenticatorData = this.#authenticatorData(rpId, isVerified, 0, count);
    const signature = createSign('sha256')
      .update(authenticatorData)
      .update(sha256(Buffer.from(clientDataJSON, 'base64url')))
      .sign(this.#key);

    return {
      id: this.credentialId,
      rawId: this.credentialId,
      type: 'public-key',
      clientExtensionResults: {},
      response: {
        clientDataJSON,
        authenticatorData: base64url(authenticatorData),
        signature: base64url(signature),
        userHandle: this.#userHandle,
      },
    };
  }

  #authenticatorData(
    rpId: string,
    isVerified: boolean,
    flags: number,
    count = this.#count + 1,
  ): Buffer {
    this.#count = count;
    const counter = Buffer.alloc(4);
    counter.writeUInt32BE(count);
    return Buffer.concat([sha256(rpId), Buffer.from([flags | 1 | (isVerified ? 4 : 0)]), counter]);
  }
}

function clientData(type: string, challenge: string, origin: string): string {
  return base64url(JSON.stringify({ type, challenge, origin, crossOrigin: false }));
}
