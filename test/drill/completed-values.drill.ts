import { testCompletedValues } from '../operator/cli/completed-values.ts';

describe('drill: values that zsh and fish complete', () => testCompletedValues(true));
