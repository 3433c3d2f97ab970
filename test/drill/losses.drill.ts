import { testLosses } from '../operator/recovery/losses.ts';

describe('drill: the table of losses in the handbook', () => testLosses(true));
