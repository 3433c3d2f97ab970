import { z } from 'zod';
import {
  describeFields,
  guid,
  lengths,
  text,
  timestamp,
} from '../../../lib/http/request/fields.ts';
import { defaultName } from './factor-store.ts';

/** The name of a factor in a body. */
export const factorName = text({ max: lengths.name })
  .default(defaultName)
  .describe('A name by which you recognise the factor.');

/** A factor as its person sees it. */
export const factorView = describeFields(
  {
    id: guid(),
    kind: z.enum(['totp', 'passkey']),
    name: z.string(),
    confirmedAt: timestamp(),
    lastUsedAt: timestamp().nullable(),
    heldAt: timestamp().nullable(),
  },
  {
    id: 'The id of the factor, for `DELETE`.',
    kind: '`totp`: an app that computes codes; `passkey`: a key of a device or password manager.',
    name: 'The name by which you recognise it.',
    confirmedAt: 'When you confirmed it.',
    lastUsedAt: 'When it was last used; null if never.',
    heldAt:
      'Of a passkey: when a password that was set by the link of a mail began to hold it. It is no whole ' +
      'login until you confirm it. Null: it is not held.',
  },
).meta({ title: 'Factor' });

/** An authenticator app that is not confirmed yet. */
export const totpView = describeFields(
  { id: guid(), secret: z.string(), url: z.string() },
  {
    id: 'The id of the factor, for `confirm`.',
    secret: 'The key of the app, in base 32. No other response has it.',
    url: 'The `otpauth:` address with the key. Show it as a QR code.',
  },
).meta({ title: 'NewTotp' });

/** The result of the first code of a factor. */
export const confirmedFactor = z
  .object({
    recoveryCodes: z
      .array(z.string())
      .describe(
        'Ten codes, each of which stands in once for a lost factor; empty unless the factor is the ' +
          'first one. No other response has them.',
      ),
  })
  .meta({ title: 'ConfirmedFactor' });
