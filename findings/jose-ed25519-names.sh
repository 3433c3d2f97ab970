#!/usr/bin/env bash
# Guess: the algorithms EdDSA and Ed25519 of a token and its key are one, as the key and the signature are.
# Found: jose finds no key where the one says EdDSA and the other Ed25519; without alg in the key both are found.
. "$(dirname "$0")/support.sh"

use_npm jose@6.2.18
cat > run.js <<'JS'
import * as jose from 'jose';

const { publicKey, privateKey } = await jose.generateKeyPair('Ed25519', { extractable: true });
const key = await jose.exportJWK(publicKey);
for (const alg of ['EdDSA', 'Ed25519']) {
  const signer = await jose.importJWK(await jose.exportJWK(privateKey), alg);
  const token = await new jose.SignJWT({}).setProtectedHeader({ alg, kid: 'a' }).sign(signer);
  for (const keyAlg of [undefined, 'EdDSA', 'Ed25519']) {
    const keys = [{ ...key, kid: 'a', ...(keyAlg && { alg: keyAlg }) }];
    const said = await jose.jwtVerify(token, jose.createLocalJWKSet({ keys })).then(
      () => 'verified',
      error => error.code,
    );
    console.log(`token ${alg}, key ${keyAlg}: ${said}`);
  }
}
JS
expect node run.js <<'OUT'
token EdDSA, key undefined: verified
token EdDSA, key EdDSA: verified
token EdDSA, key Ed25519: ERR_JWKS_NO_MATCHING_KEY
token Ed25519, key undefined: verified
token Ed25519, key EdDSA: ERR_JWKS_NO_MATCHING_KEY
token Ed25519, key Ed25519: verified
OUT
