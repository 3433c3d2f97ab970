/** The identity at a provider, by which a person logs in. */
export interface ProvedIdentity {
  readonly id: number;
  /** The session at the provider, which a logout token names; null: it has no name. */
  readonly providerSid: string | null;
  /** True if the provider has asked for a second factor, as its row says. */
  readonly isFactor: boolean;
}
