import { countText } from '../command/texts.ts';
import type { Difference } from './narrow-people.ts';

/** More lines would hide the rest of the output; the document has all. */
const maxLines = 100;

/** Describes what differed between the restored state and the later one, and what holds now; '' when nothing did. */
export function differencesText(differences: readonly Difference[]): string {
  if (differences.length === 0) return '';
  const lines = differences.map(({ slug, name, changes }) => `  ${slug} ${name}: ${changes.join('; ')}`);
  const more = lines.length - maxLines;
  return [
    `Differs in the later state, in ${countText(differences.length, 'place')}. The narrower holds:`,
    ...lines.slice(0, maxLines),
    ...(more > 0 ? [`  … and ${more} more, which --json prints`] : []),
    'Give back what is right: npx backoffice user change. Users without a password reset it, or: npx backoffice user password',
  ].join('\n');
}
