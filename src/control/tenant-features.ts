/**
 * The features that an operator can enable for a tenant: tokens of legacy clients, and
 * registrations by anyone. The service knows no other name.
 */
export const tenantFeatures = ['legacyTokens', 'selfRegistration'] as const;
export type TenantFeature = (typeof tenantFeatures)[number];

/** The rule that an unknown name breaks. */
export const mustBeFeature = `must be one of ${tenantFeatures.join(', ')}`;

/** True if a tenant has a feature. */
export function hasFeature(
  { features }: { readonly features: readonly string[] },
  feature: TenantFeature,
): boolean {
  return features.includes(feature);
}
