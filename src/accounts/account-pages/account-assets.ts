import { readFile } from 'node:fs/promises';
import type { Content } from '../../lib/html/assets.ts';

/** The style sheet of the account pages, by its path. */
export const accountAssets: readonly (readonly [path: string, content: Content])[] = [
  [
    '/css/account.css',
    { type: 'css', render: () => readFile(new URL('account.css', import.meta.url), 'utf8') },
  ],
];
