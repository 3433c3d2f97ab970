/** The lifetime of an access token, in seconds. */
export const accessTokenLifetimeSeconds = 15 * 60;

/**
 * The lifetime of a session after its last refresh, and at most after the login: intervals of
 * PostgreSQL.
 */
export const sessionLifetime = { idle: '7 days', total: '30 days' };

/**
 * The seconds for which a refresh token that was replaced yields the same successor again, for
 * a client whose response was lost, or with two browser tabs. A refresh whose commit hangs gets
 * 503 after the deadline of requests, 10 s, and is repeated after its `Retry-After`, 2 s. This
 * time is longer than both together by 30 s at least, so that no obedient repeat counts as
 * theft.
 */
export const refreshRepeatSeconds = 60;

/**
 * The maximum difference of the clocks of two machines, in seconds. A token is accepted for
 * this time after it has expired.
 */
export const clockSkewSeconds = 30;

/**
 * The longest time for which a process signs with a retired key: 1 s for the change feed, 10 s
 * for a request, and a reserve.
 */
const lateSigningSeconds = 30;

/**
 * The longest time from the retirement of a key until every token that it signed has expired,
 * in seconds on the clock of the control database:
 *
 *   1. A process signs the last token at most `lateSigningSeconds` after the retirement.
 *   2. The token is accepted for its lifetime, and for the skew after it has expired.
 *   3. Three other clocks take part: that of the command line, which records the retirement,
 *      and those of the processes that sign and verify. Each may differ from the clock of the
 *      control database by the skew.
 */
export const maxRetiredTokenSeconds =
  lateSigningSeconds + accessTokenLifetimeSeconds + clockSkewSeconds + 3 * clockSkewSeconds;

/**
 * The seconds for which a retired key verifies tokens: an hour, or longer if the tokens that it
 * signed live longer.
 */
export const keyRetirementSeconds = Math.max(60 * 60, maxRetiredTokenSeconds);
