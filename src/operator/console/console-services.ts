import type { Context } from '../command/operation.ts';
import type { ConsolePage } from './console-page.ts';
import type { Entrance, Visitor } from './entrance.ts';
import type { Offer } from './offered.ts';
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

/** A request of somebody known: for a page, or with a form that a page of the console has sent. */
export interface PageRequest {
  readonly services: ConsoleServices;
  readonly visitor: Visitor;
  /** The parameters of the path. */
  readonly params: Readonly<Record<string, string>>;
  /** The parameters of the query or of the form. */
  readonly given: URLSearchParams;
  /** Returns one of them. An empty one is as good as none. */
  readonly query: (name: string) => string | undefined;
  /** Returns the token of a form by its path. */
  readonly tokenOf: (path: string) => string;
}

/** A page, a text, or the path of another page. */
export type Answer = ConsolePage | string | { readonly to: string };
