/**
 * The part of the changelog for a version, and a sentence for each reason why it cannot be
 * released.
 */
export interface ReleaseNotes {
  readonly notes: string;
  readonly faults: readonly string[];
}

/**
 * Cuts the section of a version out of a changelog in the format of Keep a Changelog.
 * @param changelog whose newest section comes first
 */
export function releaseNotes(changelog: string, version: string): ReleaseNotes {
  const [, ...sections] = changelog.split(/^## /m);
  const parts = sections.map(section => {
    const [heading = '', ...lines] = section.split('\n');
    return { heading, text: lines.join('\n').trim() };
  });
  const isUnreleased = ({ heading }: { heading: string }): boolean =>
    /^\[Unreleased\]/i.test(heading);
  const waiting = parts.find(isUnreleased);
  const newest = parts.find(part => !isUnreleased(part));
  const [, name, date] = /^\[([^\]]+)\](?: - (\S+))?/.exec(newest?.heading ?? '') ?? [];

  const faults: string[] = [];
  if (waiting?.text) {
    faults.push(
      `CHANGELOG.md has changes under [Unreleased]: move them to the section of ${version}.`,
    );
  }
  if (name !== version) {
    faults.push(
      `The newest section of CHANGELOG.md is ${name ?? 'missing'}, and package.json has version ${version}.`,
    );
  } else if (!/^\d{4}-\d\d-\d\d$/.test(date ?? '')) {
    faults.push(
      `The section of ${version} in CHANGELOG.md has no date: write "## [${version}] - YYYY-MM-DD".`,
    );
  } else if (!newest?.text) {
    faults.push(`The section of ${version} in CHANGELOG.md is empty.`);
  }

  return { notes: `# ${version}\n\n${withoutLinks(newest?.text ?? '')}\n`, faults };
}

/**
 * Names files of the repository in place of links to them, which lead nowhere on a release
 * page.
 */
function withoutLinks(text: string): string {
  return text.replaceAll(/\[([^\]]+)\]\((?!https?:)([^)]+)\)/g, (_, name: string, path: string) => {
    const isPath = name.replaceAll('`', '') === path;
    return isPath ? `\`${path}\`` : `${name} (\`${path}\`)`;
  });
}
