import type { Context } from '../command/operation.ts';
import type { Offer } from './command-links.ts';
import type { Entrance } from './entrance.ts';
import type { Runs } from './runs.ts';

/** What the pages of a console use. */
export interface ConsoleServices {
  readonly entrance: Entrance;
  readonly offered: Offer;
  readonly runs: Runs;
  /** The control database. Pages open no other one. */
  readonly control: Context<'statements'>['installation'];
  /** Where the console runs, and what it runs, in a word or two. */
  readonly shell: { readonly place: string; readonly mode: string };
  /** True for a team: each change needs a reason. */
  readonly needsReason: boolean;
}

/** What a page is made of: the parameters of its address, and the services. */
export interface PageRequest {
  readonly services: ConsoleServices;
  readonly params: Readonly<Record<string, string>>;
  /** The parameters of the query. An empty one is as good as none. */
  readonly query: (name: string) => string | undefined;
}
