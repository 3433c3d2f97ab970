import { z } from 'zod';
import { describeFields, int32, intCount } from '../../../lib/http/request/fields.ts';
import { factorName } from './factor-fields.ts';

/** The name of a passkey that its person has not named. */
const defaultPasskeyName = 'Passkey';

/** Bytes in base64url, as `toJSON()` of a credential has them. */
const bytes = (max: number) => z.base64url().max(max);
/** A credential id has at most 1,023 bytes (WebAuthn §4). */
const credentialId = bytes(1_364).describe('The name of the passkey, in base64url.');
const clientDataJSON = bytes(2_000).describe(
  'What the browser says of the page and the challenge, in base64url.',
);

/** The part of `toJSON()` of a used passkey that the service reads. */
export const assertionField = z
  .object({
    id: credentialId,
    response: z
      .object({
        clientDataJSON,
        authenticatorData: bytes(2_000).describe('What the authenticator says, in base64url.'),
        signature: bytes(2_000).describe('The signature of both, in base64url.'),
        userHandle: bytes(100)
          .optional()
          .describe('The person, as `user.id` of the creation has it; needed for a login alone.'),
      })
      .describe('What the authenticator has signed.'),
  })
  .describe('`toJSON()` of the credential that `navigator.credentials.get` has returned.');
export type SentAssertion = z.output<typeof assertionField>;

/** The part of `toJSON()` of a new passkey that the service reads. */
export const attestationField = z
  .object({
    id: credentialId,
    response: z
      .object({
        clientDataJSON,
        attestationObject: bytes(6_000).describe('The public key and its origin, in base64url.'),
        transports: z
          .array(z.string().max(20))
          .max(10)
          .default([])
          .describe('The ways to the authenticator, such as `internal` or `usb`.'),
      })
      .describe('What the authenticator has made.'),
  })
  .describe('`toJSON()` of the credential that `navigator.credentials.create` has returned.');
export type SentAttestation = z.output<typeof attestationField>;

export const passkeyName = factorName
  .removeDefault()
  .default(defaultPasskeyName)
  .describe('A name by which you recognise the passkey.');

const credentialType = z.literal('public-key');
const credentials = z.array(
  describeFields(
    { type: credentialType, id: z.string(), transports: z.array(z.string()) },
    {
      type: 'Always `public-key`.',
      id: 'The name of the passkey, in base64url.',
      transports: 'The ways to its authenticator, as hints.',
    },
  ),
);
const challenge = 'What the authenticator has to sign, once, within five minutes, in base64url.';
const timeout = 'The time in which it has to, in ms.';

const relyingParty = describeFields(
  { id: z.string(), name: z.string() },
  { id: 'The host of the page.', name: 'The name of the tenant.' },
);
const user = describeFields(
  { id: z.string(), name: z.string(), displayName: z.string() },
  {
    id: 'Names you in the authenticator, and says nothing else; in base64url.',
    name: 'Your e-mail address.',
    displayName: 'The same address, for authenticators that show two names.',
  },
);
const algorithm = describeFields(
  { type: credentialType, alg: int32() },
  { type: 'Always `public-key`.', alg: 'The number of the algorithm in the registry of COSE.' },
);
const selection = describeFields(
  { residentKey: z.literal('preferred'), userVerification: z.literal('preferred') },
  {
    residentKey: 'The authenticator should store the passkey, so that it can offer it by itself.',
    userVerification: 'The authenticator should recognise its user.',
  },
);

/** The options with which a browser makes a passkey. */
export const creationOptionsView = describeFields(
  {
    challenge: z.string(),
    rp: relyingParty,
    user,
    pubKeyCredParams: z.array(algorithm),
    timeout: intCount(),
    attestation: z.literal('none'),
    excludeCredentials: credentials,
    authenticatorSelection: selection,
  },
  {
    challenge,
    rp: 'Where the passkey will work.',
    user: 'You, as your authenticator shows it.',
    pubKeyCredParams: 'The algorithms that the service knows.',
    timeout,
    attestation: 'No statement about the make of the authenticator.',
    excludeCredentials: 'The passkeys that you have already.',
    authenticatorSelection: 'What is preferred of the authenticator.',
  },
).meta({ title: 'PasskeyCreationOptions' });

/** The options with which a browser asks for a passkey. */
export const requestOptionsView = describeFields(
  {
    challenge: z.string(),
    rpId: z.string(),
    timeout: intCount(),
    userVerification: z.enum(['preferred', 'required']),
    allowCredentials: credentials,
  },
  {
    challenge,
    rpId: 'The host of the page.',
    timeout,
    userVerification: '`required`: the authenticator has to recognise its user.',
    allowCredentials: 'Empty: the authenticator offers what it has for the host.',
  },
).meta({ title: 'PasskeyRequestOptions' });
