import { restoredStates, testEarlierDatabases } from './earlier-databases.ts';

/**
 * Every command drops a database in the last state, unless it may have later data. The drill
 * takes the others too.
 */
describe('a control database of an earlier time than the databases of its tenants', () =>
  testEarlierDatabases(restoredStates.slice(-1), false));
