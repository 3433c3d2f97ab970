import { useMigrationFleet } from './migration-fleet.ts';
import { testMigrationRuns } from './migration-runs.ts';
import { testEndedProcesses, testRunningProcesses } from './running-processes.ts';

/** One fleet and one copy of this project for both. */
describe('migrations of a fleet by the next build', () => {
  const fleet = useMigrationFleet(3);
  testMigrationRuns(fleet);
  testRunningProcesses(fleet);
});

describe('migrations of a fleet while no process of the service runs', () => {
  testEndedProcesses(useMigrationFleet(3));
});
