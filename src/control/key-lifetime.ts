/** The time after which the key of a program ends, in days: by default, and at most. */
export const keyDays = { default: 365, max: 731 };

/** SQL condition: the key `k` of a program has neither ended nor been revoked. */
export const isValidKey = 'k.revoked_at is null and k.expires_at > now()';
