import { useMigrationFleet } from './migration-fleet.ts';
import { testMigrationRuns } from './migration-runs.ts';
import { testRunningProcesses } from './running-processes.ts';

/** One fleet and one copy of this project for both. */
describe('migrations of a fleet by the next build', () => {
  const fleet = useMigrationFleet(3);
  testMigrationRuns(fleet);
  testRunningProcesses(fleet);
});
