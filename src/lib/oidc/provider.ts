/** A provider of sign-in, as a tenant has configured it. */
export interface Provider {
  /** The name of the configuration: keys of one provider are never used for another. */
  readonly guid: string;
  /** The tenant, whose exceptions of the guard (`TRUSTED_PROVIDERS`) count. */
  readonly tenantGuid: string;
  /** The claim `iss` of its tokens, to the letter. */
  readonly issuer: string;
  /** The clients for which a token may be issued. */
  readonly clientIds: readonly string[];
}
