import type { Context } from '../command/operation-context.ts';
import type { Shell } from './console-page.ts';
import type { Entrance } from './entrance.ts';
import type { Offered } from './offered.ts';
import type { Runs } from './runs.ts';

/** What the pages of a console use. */
export interface ConsoleServices {
  readonly entrance: Entrance;
  readonly offered: ReadonlyMap<string, Offered>;
  readonly runs: Runs;
  /** The control database. Pages open no other one. */
  readonly control: Context<'statements'>['installation'];
  readonly shell: Shell;
  /** True for a team: each change needs a reason. */
  readonly needsReason: boolean;
}
