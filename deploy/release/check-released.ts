import { join } from 'node:path';
import { findReleaseFaults } from './released-migrations.ts';

// Compares the migrations with those of each release: .ci/released-migrations

for (const fault of await findReleaseFaults(join(import.meta.dirname, '../..'))) {
  console.error(fault);
  process.exitCode = 1;
}
