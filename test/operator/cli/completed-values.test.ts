import { testCompletedValues } from './completed-values.ts';

/** The drill takes zsh and fish. */
describe('values that bash completes', () => testCompletedValues(false));
