import { restoredStates, testEarlierDatabases } from '../operator/recovery/earlier-databases.ts';

describe('drill: a control database of an earlier time than the databases of its tenants', () =>
  testEarlierDatabases(restoredStates, true));
