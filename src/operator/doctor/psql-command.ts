/**
 * Returns the command that runs statements, each by itself, on the server of the control
 * database. On another server, its URL stands in place of the variable.
 * @param database undefined: that of the URL
 */
export function psqlCommand(statements: string | readonly string[], database?: string): string {
  const connect = database === undefined ? [] : [`\\c ${database}`];
  const commands = [...connect, ...[statements].flat()];

  return `psql "$DATABASE_URL"${commands.map(each => ` -c ${shellWord(each)}`).join('')}`;
}

function shellWord(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
