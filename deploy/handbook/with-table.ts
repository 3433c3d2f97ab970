/** The cells of a row, as Markdown. */
export type Row = readonly string[];

/**
 * Returns a Markdown page with another table in the place of the first one under a heading.
 * @throws {Error} when there is no table between the heading and the next one
 */
export function withTable(
  page: string,
  heading: string,
  columns: Row,
  rows: readonly Row[],
): string {
  const table = [columns, columns.map(() => '---'), ...rows].map(rowText).join('');
  const place = new RegExp(`^(#+ ${heading}\\n(?:(?![#|]).*\\n)*)(?:\\|.*\\n)+`, 'm');
  if (!place.test(page)) throw new Error(`There is no table under the heading ${heading}`);
  return page.replace(place, (_, before: string) => before + table);
}

function rowText(cells: Row): string {
  return `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |\n`;
}
