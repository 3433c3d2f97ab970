/**
 * Returns the SQL condition that a user has a confirmed second factor.
 * @param user the alias of the row of `users`
 */
export function hasFactor(user: string): string {
  return `exists (select from factors f
    where f.tenant_id = ${user}.tenant_id and f.user_id = ${user}.id and f.confirmed_at is not null)`;
}

/**
 * Returns the SQL condition that the provider of a session has asked for a second factor, and
 * that its row still says so.
 * @param session the alias of the row of `sessions`
 */
export function isProvedByProvider(session: string): string {
  return `(${session}.idp_is_factor and exists (
    select from identities i join identity_providers p on p.tenant_id = i.tenant_id and p.id = i.provider_id
     where i.id = ${session}.identity_id and p.second_factor is distinct from '{}'))`;
}

/**
 * Returns the SQL condition that a session has a second factor: its own, or one that its
 * provider has asked for.
 * @param session the alias of the row of `sessions`
 */
export function hasProvedFactor(session: string): string {
  return `(${session}.methods && '{otp,pop}' or ${isProvedByProvider(session)})`;
}

/**
 * Returns the SQL of a digest that recognises a password hash. The salt in the hash makes it
 * unique.
 * @param hash a column or a parameter
 */
export function digestOfHash(hash: string): string {
  return `sha256(convert_to(${hash}, 'UTF8'))`;
}
