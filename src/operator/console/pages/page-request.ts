import type { ConsoleServices } from '../console-services.ts';

/** What a page is made of: the parameters of its address, and the services. */
export interface PageRequest {
  readonly services: ConsoleServices;
  readonly params: Readonly<Record<string, string>>;
  /** The parameters of the query; an absent one is empty. */
  readonly query: (name: string) => string;
}
