/** The meaning of a state for an operator. */
export type Tone = 'good' | 'busy' | 'warn' | 'bad' | 'off';

const states: readonly (readonly [tone: Tone, words: readonly string[]])[] = [
  ['good', ['active', 'done', 'succeeded', 'ready', 'migrated', 'current', 'proved', 'well']],
  ['busy', ['running', 'provisioning', 'pending', 'planned', 'reserved', 'filled']],
  [
    'warn',
    ['suspended', 'warning', 'found', 'retiring', 'halted', 'kept', 'outdated', 'unfinished'],
  ],
  ['good', ['valid']],
  ['warn', ['unconfirmed', 'unproved']],
  ['bad', ['failed', 'abandoned', 'error', 'faulty', 'missing', 'silent', 'unwell']],
  ['off', ['deleted', 'disabled', 'revoked', 'refused', 'skipped', 'condemned', 'unchecked']],
  ['off', ['ended', 'ended early']],
];

/** The tones of states by their words. */
export const toneOf: ReadonlyMap<string, Tone> = new Map(
  states.flatMap(([tone, words]) => words.map(word => [word, tone] as const)),
);
