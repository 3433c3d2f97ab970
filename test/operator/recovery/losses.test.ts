import { testLosses } from './losses.ts';

/** The drill takes all rows of the table, which the other tests of this folder restore by commands of their own. */
describe('the table of losses in the handbook', () => testLosses(false));
