/** The demo tenant and its administrator. */
export interface DemoLogin {
  readonly tenant: { readonly guid: string; readonly slug: string };
  readonly email: string;
  /** Undefined when the user has another password than the one that the first start made. */
  readonly password: string | undefined;
}
