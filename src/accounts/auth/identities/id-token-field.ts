import { z } from 'zod';
import { bodyLimits } from '../../../lib/http/route.ts';

/** An ID token in a body. */
export const idTokenField = z
  .string()
  .min(1)
  .max(bodyLimits.auth)
  .describe('The ID token, with a `nonce`, at most ten minutes old. It is good once.');
