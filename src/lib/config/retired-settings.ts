/** Former settings, and what is done in their place. */
const retired: Readonly<Record<string, string>> = {
  RECOVERY_COMMAND:
    'recover the server yourself, then run bin/backoffice restore <slug> --from --until <time> < url-file ' +
    '(docs/operate/restore.md, "Recover a server to a moment").',
};

/** Returns a sentence for each variable that was a setting, and has no effect any more. */
export function retiredSettingWarnings(names: readonly string[]): string[] {
  return names.flatMap(name => {
    const remedy = retired[name];
    return remedy === undefined
      ? []
      : [`${name} is not a setting any more and has no effect: ${remedy}`];
  });
}
