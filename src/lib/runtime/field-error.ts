/**
 * The codes of faults of a field. They are part of the API and keep their
 * meaning within a version of it, so that a client can show texts of its own, in the language
 * of its user.
 */
export const fieldErrorCodes = [
  'required',
  'empty',
  'wrong_type',
  'wrong_format',
  'too_short',
  'too_long',
  'too_small',
  'too_large',
  'too_many',
  'out_of_range',
  'not_allowed',
  'invalid_text',
  'ambiguous',
  'unknown',
  'too_common',
  'own_words',
  'taken',
  'unknown_reference',
  'not_applicable',
  'invalid_token',
  'invalid',
] as const;
export type FieldErrorCode = (typeof fieldErrorCodes)[number];

/** The values that a client needs for a text of its own. */
export interface FieldErrorParameters {
  readonly min?: number;
  readonly max?: number;
  /** The type that the field has. */
  readonly expected?: string;
  /** The values that the field can have. */
  readonly values?: readonly string[];
  /** True when the value belongs to a record that is marked as deleted. */
  readonly deleted?: boolean;
}

/** A mistake in a field: a text for people, and a code with its parameters for programs. */
export interface FieldError extends FieldErrorParameters {
  readonly message: string;
  readonly code: FieldErrorCode;
}

/** The errors of the fields of a body, by the name of the field in the contract. */
export type FieldErrors = Record<string, FieldError[]>;

/**
 * The error of a Zod refinement: `refine(check, invalid('is taken', 'taken'))`. `fieldError`
 * reads it back.
 */
export function invalid(
  message: string,
  code: FieldErrorCode,
  parameters: FieldErrorParameters = {},
) {
  return { error: message, params: { code, ...parameters } };
}
