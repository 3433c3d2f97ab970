/**
 * SQL of the name by which operators know a user: the address of a person, the name of a
 * program.
 * @param row the alias of the table `users`
 */
export const nameOfUser = (row: string): string =>
  `(case ${row}.kind when 'program' then 'program ' || ${row}.first_name else ${row}.email end)`;
