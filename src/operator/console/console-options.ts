/** How a console is reached, and what it runs. */
export interface ConsoleOptions {
  readonly host: string;
  readonly port: number;
  /** Names of operations and of sets; undefined: all. */
  readonly allow: readonly string[] | undefined;
  readonly team: { readonly proxies: readonly string[]; readonly userHeader: string } | undefined;
  readonly opensBrowser: boolean;
}
