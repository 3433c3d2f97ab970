/**
 * Returns the titles that are not the title of exactly one row: of writes that are lost, or
 * were made twice.
 */
export function notWrittenOnce(
  titles: readonly string[],
  rows: readonly { Title: string }[],
): string[] {
  const counts = new Map<string, number>();
  for (const { Title } of rows) counts.set(Title, (counts.get(Title) ?? 0) + 1);
  return titles.filter(title => counts.get(title) !== 1);
}
