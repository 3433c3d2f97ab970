import { createPublicKey, verify } from 'node:crypto';

/** Checks the signature of the record of a purge, in base64, with the public key that the record names. */
export function verifyPurgeRecord(text: string, signature: string): boolean {
  const { publicKey } = JSON.parse(text) as { publicKey: string };
  const key = createPublicKey({ format: 'jwk', key: { kty: 'OKP', crv: 'Ed25519', x: publicKey } });
  return verify(null, Buffer.from(text), key, Buffer.from(signature, 'base64'));
}
