/** Values that no member of a body or of a token should have, whatever its type is. */
export const oddValues: readonly unknown[] = [
  null,
  true,
  -1,
  1.5,
  1e308,
  '',
  '\0',
  '\ud800',
  [],
  [null],
  {},
];
