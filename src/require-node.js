// Loaded before everything else with `node --import`. Plain JavaScript, because an old Node cannot load a TypeScript file.

if (!process.features.typescript) {
  console.error(
    `This is Node ${process.versions.node}, and the service needs Node 22.18 or newer: start it with npm, ` +
      'which uses the Node 24 that npm ci installs on Linux, or install Node 24.',
  );
  process.exit(1);
}
