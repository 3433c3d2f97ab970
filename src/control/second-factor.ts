/**
 * Returns the SQL condition that a user has a confirmed second factor.
 * @param user the alias of the row of `users`
 */
export function hasFactor(user: string): string {
  return `exists (select from factors f
    where f.tenant_id = ${user}.tenant_id and f.user_id = ${user}.id and f.confirmed_at is not null)`;
}

/**
 * Returns the SQL of a digest that recognises a password hash. The salt in the hash makes it
 * unique.
 * @param hash a column or a parameter
 */
export function digestOfHash(hash: string): string {
  return `sha256(convert_to(${hash}, 'UTF8'))`;
}
