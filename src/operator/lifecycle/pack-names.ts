/** The packs of reference data that this build has. */
export const packNames = ['countries', 'currencies', 'units'] as const;

export type PackName = (typeof packNames)[number];
